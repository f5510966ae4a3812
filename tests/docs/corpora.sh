#!/usr/bin/env bash
# corpora.sh REPOSITORY: each command of docs/corpora.md turns a small corpus into the expected manifest.
set -euo pipefail

page=$1/docs/corpora.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
status=0

# check SECTION N RESULT: runs the N-th block below the heading; RESULT must then be what is on stdin
check() {
  awk -v section="## $1" -v number="$2" '
    /^## / { inside = $0 == section }
    inside && /^```sh/ { ++block; next }
    /^```$/ { if (inside && block == number) exit }
    inside && block == number' "$page" >block.sh
  [ -s block.sh ] || { echo "$page: $1 has no block $2" >&2; status=1; return; }
  bash -eu block.sh
  diff -u - "$3" >&2 || { echo "$page: $1 writes another $3" >&2; status=1; }
}

mkdir -p train-clean-100/84/1
printf '84-1-0000 TURN LEFT\n84-1-0001 GO\n' >train-clean-100/84/1/84-1.trans.txt
check LibriSpeech 1 train_clips.tsv <<<'audio_file	text
train-clean-100/84/1/84-1-0000.flac	TURN LEFT
train-clean-100/84/1/84-1-0001.flac	GO'

printf '10_20_000003\tturn left\n' >transcripts.txt
check 'Multilingual LibriSpeech' 1 train_clips.tsv <<<'audio_file	text
audio/10/20/10_20_000003.flac	turn left'

printf '7\t10.wav\tTurn "left".\tturn left\tt u r n\t9\tMALE\n' >train.tsv
check FLEURS 1 train_clips.tsv <<<'audio_file	text
audio/train/10.wav	Turn "left".'

printf 'id\traw_text\tnormalized_text\tspeaker_id\n2013-a_1\tGo!\tgo\t5\n' >asr_train.tsv
check VoxPopuli 1 train_clips.tsv <<<'audio_file	text
2013/2013-a_1.ogg	go'

printf 'rec /far/rec.wav\n' >wav.scp
printf 'rec-1 turn  left\nrec-2\tgo\n' >text
printf 'rec-1 rec 0.00 1.25\nrec-2 rec 1.50 3\n' >segments
check 'Kaldi and ESPnet' 1 train_clips.tsv <<<'audio_file	start	end	text
/far/rec.wav	0.00	1.25	turn  left
/far/rec.wav	1.50	3	go'
printf 'a wav/a b.wav\n' >wav.scp
printf 'a turn left\n' >text
check 'Kaldi and ESPnet' 2 train_clips.tsv <<<'audio_file	text
wav/a b.wav	turn left'

mkdir stm
printf ';; CATEGORY\ntalk 1 kok 0.5 2 <o,f0,male> turn left\ntalk 1 kok 2 3 ignore_time_segment_in_scoring\ntalk 1 kok 3 4.5 go\n' >stm/talk.stm
check 'STM: TED-LIUM, AMI' 1 train_clips.tsv <<<'audio_file	speaker	start	end	text
sph/talk.sph	kok	0.5	2	turn left
sph/talk.sph	kok	3	4.5	go'

printf '0.500000\t2.250000\tturn left\n' >labels.txt
check "Audacity's labels" 1 talk.tsv <<<'audio_file	start	end	text
talk.wav	0.500000	2.250000	turn left'

captions='audio_file	start	end	text
talk.wav	0.500	2.250	turn left
talk.wav	3723.004	3725.000	go'
printf '1\r\n00:00:00,500 --> 00:00:02,250\r\nturn\r\nleft\r\n\r\n2\r\n01:02:03,004 --> 01:02:05,000\r\n<i>go</i>\r\n' >talk.srt
check 'SRT and WebVTT' 1 talk.tsv <<<"$captions"
printf 'WEBVTT\n\nNOTE none\n\n00:00.500 --> 00:02.250 align:start\n<v Kok>turn\nleft\n\ncue\n01:02:03.004 --> 01:02:05.000\ngo\n' >talk.srt
check 'SRT and WebVTT' 1 talk.tsv <<<"$captions"

cat >talk.TextGrid <<'END'
xmin = 0
xmax = 3
item []:
    item [1]:
        name = "words"
        xmin = 0
        xmax = 3
        intervals [1]:
            xmin = 0
            xmax = 0.5
            text = ""
        intervals [2]:
            xmin = 0.5
            xmax = 2.25
            text = "say ""go""" 
END
check "Praat's TextGrid" 1 talk.tsv <<<'audio_file	start	end	text
talk.wav	0.500	2.250	say "go"'

exit $status
