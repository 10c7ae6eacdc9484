#!/usr/bin/env python3
"""What is installed, and every piece of code in docs/library.md: compiled, linked and run as a reader would.

    library.py HONE ASSETS DATA BUILD CMAKE

Whole programs of the page are files named by their first line; fragments of C become functions of one program, in their order.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from case import ASSETS, SMOL, TINY, Case, main

BUILD, CMAKE = sys.argv[4:6]
ROOT = pathlib.Path(__file__).parents[2]
PAGE = (ROOT / "docs/library.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.M | re.S)
STRICT = ["-std=c11", "-Wall", "-Wextra", "-Werror"]
AROUND = """#include <hone.h>
#include <stdio.h>
#include <stdlib.h>
%s
%s
int main(void)
{
    hone_options *options;
    hone_model *model;
    hone_trainer *trainer;
    hone_sequence *chat;
    const char *const losses[] = {"cross_entropy", "ppo"};
    const hone_trainer_uses uses = {.size = sizeof uses, .samples = 1, .logits = 1, .logprobs = 1, .base_logprobs = 1,
                                    .losses = losses, .loss_count = 2};
    if (hone_options_create(&options, "train") || hone_options_set(options, "model", "%s") || hone_model_open(&model, options) ||
        hone_encode_chat(model, "{\\"messages\\": [{\\"role\\": \\"user\\", \\"content\\": \\"Password?\\"}, "
                                "{\\"role\\": \\"assistant\\", \\"content\\": \\"Swordfish.\\"}]}", 0, &chat) ||
        hone_trainer_open(&trainer, options, &uses)) {
        puts(hone_error());
        return 1;
    }
%s    hone_trainer_close(trainer);
    hone_sequence_destroy(chat);
    hone_model_close(model);
    hone_options_destroy(options);
    return 0;
}
"""


def blocks(language):
    return [text.replace("path/to/model", str(TINY)) for kind, text in BLOCKS if kind == language]


class Library(Case):
    @classmethod
    def setUpClass(cls):
        cls.kept = tempfile.TemporaryDirectory()
        cls.prefix = pathlib.Path(cls.kept.name) / "usr"
        subprocess.run([CMAKE, "--install", BUILD, "--prefix", cls.prefix], check=True, stdout=subprocess.DEVNULL)
        cls.libraries = next(cls.prefix.glob("**/libhone.so")).parent
        cls.environment = {**os.environ, "PATH": f"{cls.prefix}/bin:{os.environ['PATH']}", "LD_LIBRARY_PATH": str(cls.libraries),
                           "PKG_CONFIG_PATH": str(cls.libraries / "pkgconfig"), "CMAKE_PREFIX_PATH": str(cls.prefix),
                           "HONE_LIBRARY": str(cls.libraries / "libhone.so"), "PYTHONPATH": str(ROOT / "python"),
                           "PYTHONDONTWRITEBYTECODE": "1"}

    @classmethod
    def tearDownClass(cls):
        cls.kept.cleanup()

    def shell(self, *command):
        result = subprocess.run(list(map(str, command)), cwd=self.dir, env=self.environment, capture_output=True, text=True, timeout=600,
                                check=False)
        self.assertEqual(result.returncode, 0, f"{command}\n{result.stdout}{result.stderr}")
        return result.stdout

    def test_everything_is_installed(self):
        for pattern in ("bin/hone", "include/hone.h", "**/libhone.so.0", "**/pkgconfig/hone.pc", "**/cmake/hone/hone-config.cmake",
                        "**/cmake/hone/hone-config-version.cmake", "share/man/man1/hone.1", "share/bash-completion/completions/hone",
                        "share/doc/hone/LICENSE", "share/doc/hone/examples/embed.c", "share/doc/hone/examples/embed.py",
                        "share/doc/hone/docs/library.md"):
            self.assertTrue(any(path.stat().st_size for path in self.prefix.glob(pattern)), pattern)
        version = self.shell("hone", "--version").split()[1]
        self.assertEqual(self.shell("pkg-config", "--modversion", "hone").strip(), version)
        self.assertNotIn(str(ROOT), (self.libraries / "pkgconfig/hone.pc").read_text())

    def test_the_manual_page_has_every_command_and_option(self):
        page = (self.prefix / "share/man/man1/hone.1").read_text()
        for command in re.findall(r"^COMMAND\(\w+, (\w+),", (ROOT / "src/config/options.def").read_text(), re.M):
            self.assertIn(f"\\fBhone {command}\\fR", page)
        for option in re.findall(r"^OPTION\(\w+, (\w+),", (ROOT / "src/config/options.def").read_text(), re.M):
            self.assertIn("\\-\\-" + option.replace("_", "\\-"), page)
        self.assertIsNone(re.search(r"^[.'](?!\\\"|TH |SH |SS |TP$)", page, re.M))     # no text that is read as a request
        if shutil.which("groff"):
            shown = subprocess.run(["groff", "-man", "-ww", "-Tutf8", self.prefix / "share/man/man1/hone.1"], capture_output=True, check=True)
            self.assertEqual(shown.stderr, b"")

    def test_programs_of_the_page(self):
        whole = [text for text in blocks("c") if "int main(" in text]
        for text in whole:
            (self.dir / re.match(r"/\* (\w+\.c):", text)[1]).write_text(text)
        for text in blocks("sh"):
            said = self.shell("sh", "-euxc", text)
        self.assertTrue(all(token.isdigit() for token in said.split()) and len(said.split()) > 3, said)
        (cmake,) = blocks("cmake")
        (self.dir / "CMakeLists.txt").write_text(cmake)
        self.shell(CMAKE, "-S", ".", "-B", "made")
        self.shell(CMAKE, "--build", "made")
        self.assertEqual(self.shell("made/tokens", TINY), said)

    def test_fragments_of_the_page(self):
        parts = [text for text in blocks("c") if "int main(" not in text]
        functions = "".join(text for text in parts if text.startswith("static"))
        parts = [text for text in parts if not text.startswith("static")]
        bodies = "".join(f"static void part{i}(hone_model *model, hone_trainer *trainer, const hone_sequence *chat)\n"
                         f"{{\n(void)model, (void)trainer, (void)chat;\n{text}}}\n" for i, text in enumerate(parts))
        calls = "".join(f'    puts("part {i}");\n    part{i}(model, trainer, chat);\n' for i in range(len(parts)))
        (self.dir / "parts.c").write_text(AROUND % (functions, bodies, TINY, calls))
        flags = self.shell("pkg-config", "--cflags", "--libs", "hone").split()
        self.shell("cc", *STRICT, "parts.c", *flags, "-o", "parts")
        said = self.shell("./parts").split("part ")[1:]
        self.assertEqual(len(said), len(parts))
        for part in said:
            self.assertGreater(len(part.split("\n")), 2, said)          # each says that it did what it should

    def test_the_python_of_the_page(self):
        (self.dir / "page.py").write_text("\n".join(blocks("python")) + "\nimport sys\nassert 'torch' not in sys.modules\n")
        said = self.shell(sys.executable, "page.py")
        self.assertIn("Hello there.", said)
        self.assertIn("no such directory", said)
        self.assertTrue((self.dir / "adapter/adapter_config.json").exists())

    def test_the_example_in_both_languages(self):
        """Both learn the same, to the digits that they print."""
        example = self.prefix / "share/doc/hone/examples"
        self.assertLessEqual(len((example / "embed.c").read_text().splitlines()), 66)
        flags = self.shell("pkg-config", "--cflags", "--libs", "hone").split()
        self.shell("cc", *STRICT, example / "embed.c", *flags, "-o", "embed")
        said = self.shell("./embed", TINY, "c")
        losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", said)]
        self.assertLess(losses[-1], losses[0])
        self.assertTrue(said.endswith("Swordfish.\n"), said)
        self.assertEqual(self.shell(sys.executable, example / "embed.py", TINY, "python"), said)
        for name in ("c", "python"):
            self.shell("hone", "generate", "--model", TINY, "--adapter", name, "--prompt", "Hi", "--max-new-tokens", "2")

    def test_python_chooses_tokens_as_it_is_told(self):
        """Breaks with a setting that sample does not hand over, a stop text in the answer, and the prompt's log-probabilities one
        token too late."""
        (self.dir / "settings.py").write_text(f"""
import hone

model = hone.Model({str(TINY)!r}, dtype="float32")
ids = model.chat_template([{{"role": "user", "content": "Hi"}}], prompt=True).ids
settings = dict(max_new_tokens=40, temperature=2.0, seed=1)
greedy, plain = model.sample(ids, max_new_tokens=40), model.sample(ids, **settings)
assert greedy.ids != plain.ids and plain.top_logprobs is plain.prompt_logprobs is None
assert model.sample(ids, top_k=1, **settings).ids == model.sample(ids, min_p=1, **settings).ids == greedy.ids
for name, value in (("repetition_penalty", 3.0), ("presence_penalty", 2), ("frequency_penalty", 2)):
    assert model.sample(ids, max_new_tokens=40, **{{name: value}}).ids != greedy.ids, name
assert plain.ids[0] not in model.sample(ids, logit_bias={{plain.ids[0]: -100}}, **settings).ids
pieces = []
for at in range(0, len(plain.text) - 6, 3):
    stop = plain.text[at:at + 4]
    cut = model.sample(ids, stop=[stop, "never said", 10], stream=pieces.append, **settings)
    assert plain.text.startswith(cut.text) and cut.ended and (10 in cut.ids or cut.text == plain.text[:plain.text.index(stop)]), (stop, cut)
    assert "".join(pieces) == cut.text
    pieces.clear()
told = model.sample(ids, logprobs=2, prompt_logprobs=3, **settings)
assert told.ids == plain.ids and all(abs(a - b) < 1e-3 for a, b in zip(told.logprobs, plain.logprobs))
assert [len(top) for top in told.top_logprobs] == [2] * len(told.ids)
assert all(max(top.values()) >= score for top, score in zip(told.top_logprobs, told.logprobs))
assert told.prompt_logprobs[0] is None and told.prompt_top_logprobs[0] == {{}} and len(told.prompt_logprobs) == len(ids)
want = model.logprobs([ids])[0]
assert all(abs(a - b) < 1e-3 for a, b in zip(told.prompt_logprobs[1:], want[1:])), (told.prompt_logprobs, want)
assert all(len(top) == 3 and (max(top, key=top.get) == id) == (max(top.values()) == score)
           for top, score, id in zip(told.prompt_top_logprobs[1:], told.prompt_logprobs[1:], ids[1:]))
with hone.Trainer({str(TINY)!r}, dtype="float32") as trainer:
    same = trainer.sample(ids, logprobs=2, prompt_logprobs=3, stop="never said", **settings)
    assert same.ids == told.ids and len(same.prompt_top_logprobs) == len(ids)
print("good")
""")
        self.assertIn("good", self.shell(sys.executable, "settings.py"))

    def test_turns_are_those_of_a_fresh_model_in_every_family(self):
        """Also where layers have no cache of which a part could be kept (linear attention), or a local one."""
        models = sorted(str(path) for path in (ASSETS / "models").glob("tiny-*"))
        self.assertGreater(len(models), 10)
        (self.dir / "turns.py").write_text(f"""
import hone

for path in {models}:
    turns = [[3, 4, 5, 6, 7, 8, 9], [3, 4, 5, 6, 7, 8, 9, 10, 11, 12] * 8, [3, 4, 5, 9, 9], [3, 4, 5, 9, 9, 3, 3], [3, 4]]
    with hone.Model(path, dtype="float32") as kept:
        for ids in turns:
            with hone.Model(path, dtype="float32") as fresh:
                settings = dict(max_new_tokens=6, temperature=1.0, seed=2)
                first, second = kept.sample(ids, **settings), fresh.sample(ids, **settings)
                assert first.ids == second.ids, (path, ids, first, second)
print("good")
""")
        self.assertIn("good", self.shell(sys.executable, "turns.py"))

    def test_handles_on_one_base_have_its_weights_once(self):
        """Without sharing each takes the bytes of all weights again: those of the file, or in float32 of copies twice as large,
        where the processor has units for bfloat16."""
        (self.dir / "once.py").write_text(f"""
import sys

import hone

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

def grown(kind, **options):
    before, handle = resident(), kind({str(SMOL)!r}, **options)
    if kind is hone.Model:
        handle.logprobs([ids])
    else:
        handle.forward_backward([ids])
        handle.optim_step(1e-3)
    return handle, resident() - before

ids, weights = list(range(100, 160)), {(SMOL / "model.safetensors").stat().st_size}
dtype, kinds = sys.argv[1], [getattr(hone, kind) for kind in sys.argv[2:]]
options = [dict(dtype=dtype, **(dict(micro_batch_tokens=128) if kind is hone.Trainer else {{}})) for kind in kinds]
handles, growths = zip(*(grown(kind, **more) for kind, more in zip(kinds, options)))
bytes = 2 * weights if growths[0] > 1.8 * weights else weights
assert growths[0] > 0.9 * bytes, (dtype, growths)
assert max(growths[1:]) < growths[0] - 0.7 * bytes, (dtype, growths)
print("good", growths)
""")
        for dtype in "bfloat16", "float32":     # in processes of their own: memory that another left is taken again without growth
            for kinds in ("Model", "Model", "Model"), ("Trainer", "Trainer", "Model"):
                print(self.shell(sys.executable, "once.py", dtype, *kinds))

    def test_signals_wait_while_python_computes(self):
        """A handler that ran on a thread that computes would overwrite what matmuls keep below the end of the stack."""
        (self.dir / "signals.py").write_text(f"""
import signal
import threading
import hone

seen, done = set(), threading.Event()
status = f"/proc/self/task/{{threading.get_native_id()}}/status"

def watch():
    while not done.is_set():
        line = next(line for line in open(status) if line.startswith("SigBlk"))
        seen.add(int(line.split()[1], 16) >> signal.SIGINT - 1 & 1)

thread = threading.Thread(target=watch)
with hone.Trainer({str(TINY)!r}, lora_r=8) as trainer:
    chat = trainer.chat_template([{{"role": "user", "content": "Hi"}}, {{"role": "assistant", "content": "Hello there."}}])
    trainer.forward_backward([chat])                    # the library has its threads now
    thread.start()
    for _ in range(30):
        trainer.forward_backward([chat] * 8)
        trainer.optim_step(1e-3)
done.set()
thread.join()
assert 1 in seen, "SIGINT was never blocked"
assert not signal.pthread_sigmask(signal.SIG_BLOCK, []), "and it is not any more"
print("good")
""")
        self.assertIn("good", self.shell(sys.executable, "signals.py"))

    def test_python_says_what_is_wrong(self):
        (self.dir / "wrong.py").write_text(f"""
import hone

def fails(call, *says, error=hone.Error):
    try:
        call()
    except error as raised:
        assert all(text in str(raised) for text in says), raised
    else:
        raise AssertionError(says)

model = hone.Model({str(TINY)!r})
assert hone.__version__ == hone.version
fails(lambda: hone.Model("/nonexistent"), "no such directory")
fails(lambda: hone.Model({str(TINY)!r}, adapter="outt"), "outt", "no adapter there")
fails(lambda: hone.Model({str(TINY)!r}, sede=1), "sede", "seed")
fails(lambda: model.chat_template([]), "empty")
fails(lambda: model.chat_template([{{"role": "user"}}]), "content")
fails(lambda: model.sample([]), "no tokens")
fails(lambda: model.sample("Hi", temperature=float("nan")), "temperature")
fails(lambda: model.sample("Hi", max_new_tokens=0), "max_new_tokens")
fails(lambda: model.sample([10 ** 6]), "vocabulary")
fails(lambda: model.logprobs([hone.Sequence([1, 2], [1.0])]), "weights", error=ValueError)
for call in (lambda: model.logprobs([[1, 2 ** 32 + 2]]), lambda: model.sample([-2 ** 40]), lambda: model.detokenize([2 ** 31]),
             lambda: model.sample("Hi", stop=2 ** 33), lambda: model.sample("Hi", seed=2 ** 64), lambda: model.sample("Hi", max_new_tokens=2 ** 63)):
    fails(call, "bits", error=ValueError)
for call in (lambda: hone.Model({str(TINY)!r} + "\\0x"), lambda: hone.Model({str(TINY)!r}, adapter="out\\0"),
             lambda: hone.Model({str(TINY)!r}, **{{"see\\0d": 1}})):
    fails(call, "a zero byte", error=ValueError)
fails(lambda: model.sample("Hi", stream=lambda text: 1 / 0), error=ZeroDivisionError)
assert model.sample("Hi", max_new_tokens=9, stream=lambda text: True).ids
assert model.logprobs([]) == []
chat = model.chat_template([{{"role": "user", "content": "Hi"}}, {{"role": "assistant", "content": "Hello."}}])
assert model.logprobs(chat) == model.logprobs([chat])
fails(lambda: model.sample("Hi", top_k=-1), "top_k")
fails(lambda: model.sample("Hi", logit_bias={{10 ** 6: 1}}), "vocabulary")
fails(lambda: model.sample("Hi", stop=""), "empty")
first = model.sample("Hi", max_new_tokens=3).ids[0]
assert len(model.sample("Hi", max_new_tokens=3, stop=first).ids) == 1
assert len(model.sample("Hi", max_new_tokens=3, stop=model.detokenize([first], special=True)).ids) == 1
fails(lambda: hone.Trainer({str(TINY)!r}, learning_rat=1), "learning_rate")
nested = []
model.sample("Hi", max_new_tokens=2, stream=lambda text: nested.append(fails(lambda: model.tokenize("x"), "inside a callback")))
model.close()
model.close()
fails(lambda: model.tokenize("x"), "is closed")
with hone.Trainer({str(TINY)!r}, sampling=False) as trainer:
    fails(lambda: trainer.sample("Hi"), "uses.samples")
    fails(lambda: trainer.logprobs([[1, 2]], base=True), "uses.base_logprobs")
    fails(lambda: trainer.forward_backward([[1, 2]], "ppo"), "old_logprobs", "ppo")
    fails(lambda: trainer.forward_backward([[1, 2]], "pppo"), "cross_entropy,ppo")
    fails(lambda: trainer.forward_backward([[1, 2]], epsilon=1.0), "cross_entropy", "epsilon")
    fails(lambda: trainer.forward_backward([[1, 2]], lambda *unused: 0, epsilon=1.0), "settings", error=TypeError)
    fails(lambda: trainer.forward_backward([hone.Datum([1, 2], targets=[1])]), "targets", error=ValueError)
    fails(lambda: trainer.read_tensor("lm_head.weight"), "not trained")
    fails(lambda: trainer.optim_step(beta2=1.0), "beta2 is 1")
    fails(lambda: trainer.optim_step(), "without sequences")
    fails(lambda: trainer.forward_backward([[1, 2, 3]], lambda *unused: 1 / 0), error=ZeroDivisionError)
    fails(lambda: trainer.forward_backward([hone.Sequence([1, 2], [0, float("nan")])]), "nan")
    fails(lambda: trainer.load_state("nowhere"), "nowhere")
    fails(lambda: trainer.save("no\\0where"), "a zero byte", error=ValueError)
    fails(lambda: trainer.eval(), "validation")
    for wrong in ("hello", 7, [1, 2], ["hello"], [{{"role": "user"}}], {{"ids": [1]}}):
        fails(lambda: trainer.forward_backward(wrong), "a list of token ids", error=TypeError)
fails(lambda: trainer.optim_step(), "this trainer is closed")
with hone.Trainer({str(TINY)!r}, lora_target_modules=["q_proj", "v_proj"]) as trainer:
    trainer.save("lists")
assert set(__import__("json").load(open("lists/adapter_config.json"))["target_modules"]) == {{"q_proj", "v_proj"}}
import os, signal
fails(lambda: hone.Model({str(TINY)!r}).sample("Hi", stream=lambda text: os.kill(os.getpid(), signal.SIGINT)), error=KeyboardInterrupt)
print("good", len(nested))
""")
        self.assertIn("good", self.shell(sys.executable, "wrong.py"))


main(Library, Library)
