# SPDX-License-Identifier: MIT
"""Says whether generated clips helped a ViT: concordance on test clips, with and without them, over several seeds.

    tests/bench/generated_clips.py OUTPUT...

Each OUTPUT is a folder of examples/spectrogram_gan_vit/run.sh, of one corpus and with a seed of its own. Prints the table of the
example's README. The difference stands beside two intervals of 95 %. That of the seeds is Student's t over their paired
differences: how another seed would differ, for the same test clips. That of the clips is a bootstrap over the test clips, which
are the same for all seeds and in both columns of a resample: how other test clips would differ, for the same trained models.
"""

import csv
import math
import random
import sys
from pathlib import Path

EMOTIONS = ("valence", "arousal")
RESAMPLES = 4000
T_975 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}  # by degrees of freedom


def labels_of(corpus: Path) -> dict[str, tuple[float, ...]]:
    """Returns the emotions of each song, from -1 to 1."""
    with open(corpus / "annotations.csv", newline="") as table:
        rows = csv.reader(table)
        header = [name.strip() for name in next(rows)]
        columns = [header.index(f"{emotion}_mean") for emotion in EMOTIONS]
        song = header.index("song_id")
        return {row[song].strip(): tuple((float(row[column]) - 5) / 4 for column in columns) for row in rows}


def read_predictions(file: Path) -> dict[str, tuple[float, ...]]:
    """Returns what vit_predict wrote, by song."""
    with open(file, newline="") as table:
        return {Path(row["file"]).stem: tuple(float(row[emotion]) for emotion in EMOTIONS) for row in csv.DictReader(table)}


def concordance(pairs: list[tuple[float, float]]) -> float:
    """Returns Lin's coefficient of (predicted, labelled) pairs, with the population's variances."""
    count = len(pairs)
    predicted_mean = sum(predicted for predicted, _ in pairs) / count
    label_mean = sum(label for _, label in pairs) / count
    covariance = sum((predicted - predicted_mean) * (label - label_mean) for predicted, label in pairs) / count
    spread = sum((predicted - predicted_mean) ** 2 + (label - label_mean) ** 2 for predicted, label in pairs) / count
    return 2 * covariance / (spread + (predicted_mean - label_mean) ** 2)


def mean(values) -> float:
    values = list(values)
    return sum(values) / len(values)


def interval_of_seeds(differences: list[float]) -> tuple[float, float]:
    if len(differences) < 2:
        return -math.inf, math.inf
    middle, freedom = mean(differences), len(differences) - 1
    deviation = math.sqrt(sum((value - middle) ** 2 for value in differences) / freedom)
    half = T_975[freedom] * deviation / math.sqrt(len(differences))
    return middle - half, middle + half


def score_of(seeds: list, drawn) -> float:
    """Returns the mean concordance over seeds of the drawn clips."""
    return mean(concordance([pairs[clip] for clip in drawn]) for pairs in seeds)


def interval_of_clips(with_them: list, without: list) -> tuple[float, float]:
    """Each argument holds a list of pairs for each seed, of the same clips in the same order."""
    draws = random.Random(1)
    clips = range(len(with_them[0]))
    differences = []
    for _ in range(RESAMPLES):
        drawn = draws.choices(clips, k=len(clips))
        differences.append(score_of(with_them, drawn) - score_of(without, drawn))
    differences.sort()
    return differences[int(0.025 * RESAMPLES)], differences[int(0.975 * RESAMPLES) - 1]


def cells(values: list[float]) -> str:
    return " | ".join(f"{value:.3f}" for value in [*values, mean(values)])


def main(outputs: list[Path]) -> None:
    runs = [(labels_of(output / "corpus"), read_predictions(output / "predictions/vit.csv"),
             read_predictions(output / "predictions/vit_synthetic.csv")) for output in outputs]
    songs = sorted(runs[0][1])
    for output, (_, plain, synthetic) in zip(outputs, runs):
        if sorted(plain) != songs or sorted(synthetic) != songs:
            sys.exit(f"{output}: predicts other test clips than {outputs[0]}")
    print("| concordance on test clips |", " | ".join(f"run {i + 1}" for i in range(len(runs))),
          "| mean | difference | interval of seeds | of clips |")
    print("| --- |" + " ---: |" * (len(runs) + 4))
    for place, emotion in enumerate(EMOTIONS):
        without = [[(plain[song][place], labels[song][place]) for song in songs] for labels, plain, _ in runs]
        with_them = [[(synthetic[song][place], labels[song][place]) for song in songs] for labels, _, synthetic in runs]
        before, after = [concordance(pairs) for pairs in without], [concordance(pairs) for pairs in with_them]
        of_seeds = interval_of_seeds([b - a for a, b in zip(before, after)])
        of_clips = interval_of_clips(with_them, without)
        print(f"| {emotion} | {cells(before)} | | | |")
        print(f"| {emotion}, with generated clips | {cells(after)} | {mean(after) - mean(before):+.3f} |",
              f"{of_seeds[0]:+.3f} ... {of_seeds[1]:+.3f} | {of_clips[0]:+.3f} ... {of_clips[1]:+.3f} |")


if __name__ == "__main__":
    if len(sys.argv) < 2 or len(sys.argv) > 11 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    try:
        main([Path(argument) for argument in sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{error.filename}: {error.strerror}")
