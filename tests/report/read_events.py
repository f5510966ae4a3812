# SPDX-License-Identifier: MIT
"""read_events.py FOLDER: checks by TensorBoard's own reader, and by its HTTP pages, what tensorboard.sh had written into FOLDER/run."""
import json
import math
import sys
import threading
import urllib.parse
import urllib.request
from wsgiref.simple_server import WSGIRequestHandler, make_server

from tensorboard import default, program
from tensorboard.backend import application
from tensorboard.backend.event_processing import event_accumulator, tag_types

folder = sys.argv[1]
reader = event_accumulator.EventAccumulator(folder + "/run", size_guidance={kind: 0 for kind in (
    "scalars", "tensors", "histograms", "images", "audio")})
reader.Reload()
scalars = {tag: reader.Scalars(tag) for tag in reader.Tags()["scalars"]}
assert [event.step for event in scalars["loss"]] == [1, 2, 3], scalars["loss"]
assert scalars["loss"][0].value == 0.5 and math.isnan(scalars["loss"][1].value), scalars["loss"]
assert math.isinf(scalars["loss"][2].value)
assert sorted(reader.Tags()["histograms"]) == ["rates", "weights"] and reader.Histograms("weights")[0].histogram_value.num == 5
image = reader.Images("picture")[0]
assert (image.height, image.width) == (2, 3) and image.encoded_image_string.startswith(b"\x89PNG")
assert reader.Audio("sound")[0].sample_rate == 8000
assert reader.Tensors("said")[0].tensor_proto.string_val[0] == b"*words*"
# What Run::offer_examples left there.
transcripts = reader.Tensors("transcripts")[0]
assert transcripts.step == 7 and transcripts.tensor_proto.string_val[0] .decode() == "*clip 1*: turn **left → right**", transcripts
mel = reader.Images("mel")[0]
assert (mel.height, mel.width, mel.step) == (1, 1, 7) and mel.encoded_image_string.endswith(b"IEND\xaeB`\x82")
tone = reader.Audio("tone")[0]
assert tone.length_frames == 800 and tone.encoded_audio_string[:4] == b"RIFF" and len(tone.encoded_audio_string) == 44 + 1600
assert reader.Histograms("rates")[0].histogram_value.num == 3


class Quiet(WSGIRequestHandler):
    def log_message(self, *arguments):
        pass


board = program.TensorBoard(plugins=default.get_plugins())
board.configure(argv=["tensorboard", "--logdir", folder, "--load_fast", "false", "--reload_interval", "0"])
ingester = program.LocalDataIngester(board.flags) if hasattr(program, "LocalDataIngester") else None
if ingester is None:
    from tensorboard.backend.event_processing.data_ingester import LocalDataIngester

    ingester = LocalDataIngester(board.flags)
ingester.start()
app = application.TensorBoardWSGIApp(board.flags, board.plugin_loaders, ingester.data_provider, board.assets_zip_provider)
server = make_server("127.0.0.1", 0, app, handler_class=Quiet)
threading.Thread(target=server.serve_forever, daemon=True).start()


def get(path, **query):
    url = f"http://127.0.0.1:{server.server_port}{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read()


for _ in range(200):
    if b"run" in get("/data/runs"):
        break
assert json.loads(get("/data/plugin/scalars/tags"))["run"].keys() >= {"loss"}
rows = json.loads(get("/data/plugin/scalars/scalars", run="run", tag="loss"))
assert [row[1] for row in rows] == [1, 2, 3] and rows[0][2] == 0.5 and str(rows[1][2]) in ("nan", "NaN"), rows
assert b"words" in get("/data/plugin/text/text", run="run", tag="said")
assert "<em>clip 1</em>: turn <strong>left → right</strong>" in json.loads(get("/data/plugin/text/text", run="run", tag="transcripts"))[0]["text"]
assert get("/data/plugin/images/tags") and b"picture" in get("/data/plugin/images/tags")
assert b"sound" in get("/data/plugin/audio/tags")
assert b"weights" in get("/data/plugin/histograms/tags")
server.shutdown()
print("TensorBoard reads all of it")
