"""What somebody types first: `situ run MODEL "..."`, standard input, help, words with a letter too many, and what a command
says of a model of another kind.

    python tests/first_command_test.py --situ build/situ [unittest options]

Needs numpy and onnx (`make python`).
"""
import functools
import json
import os
import re
import resource
import shutil
import signal
import subprocess
from pathlib import Path

import cli_case
import tiny_encoders
import tiny_models
import tiny_speech
from cli_case import CliTest, Run, main
from sampling_test import write_chat_model
from terminal_test import Terminal

TEMPLATE = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}a:"
COMMANDS = ["run", "chat", "serve", "transcribe", "embed", "batch", "check", "pull", "list", "rm", "inspect", "bench", "perplexity", "cache"]
FIGURES = r"\A\[.*: prefill .*\]\n\Z"


class FirstTest(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = write_chat_model(cls.folder / "model", TEMPLATE)
        cls.plain = cls.folder / "plain"
        shutil.copytree(cls.model, cls.plain)
        (cls.plain / "tokenizer_config.json").unlink()

    def text(self, *arguments, input=None, code=0, model=None):
        """What `situ run` prints, with text on a pipe as its standard input."""
        process = subprocess.run([cli_case.SITU, "run", model or self.model, "-n", "4", "--ignore-eos", "--threads", "1", *map(str, arguments)],
                                 **({"stdin": subprocess.DEVNULL} if input is None else {"input": input}), capture_output=True, text=True,
                                 timeout=cli_case.PATIENCE, env={**os.environ, "SITU_CACHE_DIR": ""})
        self.assertEqual(process.returncode, code, process.stderr)
        self.err = process.stderr
        return process.stdout


class PromptTest(FirstTest):
    def test_an_argument_is_a_message(self):
        answer = self.text("Hi", "--greedy")
        self.assertEqual(answer, self.text("--prompt", "u:Hi;a:"))
        self.assertEqual(answer, self.text("--prompt", "Hi", "--chat"))
        self.assertRegex(self.err, FIGURES)
        self.assertEqual(self.text("Hi", "--greedy", "--system", "Be"), self.text("--prompt", "s:Be;u:Hi;a:"))
        self.assertEqual(self.text("Hi", "--raw"), self.text("--prompt", "Hi"))
        self.assertEqual(self.text("[a,b]", "--greedy", "--stop-id", 95), self.text("--prompt", "u:[a,b];a:", "--stop-id", 95))

    def test_without_a_template_it_is_the_prompt(self):
        self.assertEqual(self.text("Hi", model=self.plain), self.text("--prompt", "Hi"))
        self.text("Hi", "--system", "Be", model=self.plain, code=2)
        self.assertIn("chat template", self.err)

    def test_files_and_standard_input(self):
        file = self.folder / "file"
        file.write_text("ab\ncd\n")
        expected = self.text("--prompt", "u:Go\n\nab\ncd;a:", model=self.with_lines())
        for arguments, input in ((("Go", "-f", file), None), (("Go",), "ab\ncd\n"), (("Go", "-f", "-"), "ab\ncd\r\n")):
            with self.subTest(arguments, input=input):
                self.assertEqual(self.text(*arguments, "--greedy", input=input, model=self.with_lines()), expected)
        self.assertEqual(self.text("--greedy", input="Hi\n"), self.text("Hi", "--greedy"))
        self.assertEqual(self.text("--greedy", "-f", file, input="", model=self.with_lines()), self.text("--prompt", "u:ab\ncd;a:", model=self.with_lines()))
        self.assertEqual(self.text("--raw", input="Hi"), self.text("--prompt", "Hi"))
        with file.open() as lines:  # a plain file
            run = Run("run", self.with_lines(), "--greedy", "-n", 4, "--ignore-eos", stdin=lines)
        self.assertEqual((run.code, run.out), (0, self.text("--prompt", "u:ab\ncd;a:", model=self.with_lines())), run)

    def with_lines(self):
        """The model with a token for the line's end."""
        model = self.folder / "lines"
        if not model.exists():
            shutil.copytree(self.model, model)
            words = json.loads((model / "tokenizer.json").read_text())
            words["model"]["vocab"]["\n"] = words["model"]["vocab"].pop("~")
            (model / "tokenizer.json").write_text(json.dumps(words))
        return model

    def test_standard_input_is_left_alone(self):
        """With --prompt and --prompt-ids: a pipe that nobody closes holds nothing up."""
        for arguments in (("--prompt", "Hi"), ("--prompt-ids", "1,2"), ("--prompt", "Hi", "--chat")):
            with self.subTest(arguments):
                read, write = os.pipe()
                run = Run("run", self.model, *arguments, "-n", 2, stdin=read)
                os.close(read), os.close(write)
                self.assertEqual(run.code, 0, run)

    def test_waiting_is_told(self):
        with subprocess.Popen([cli_case.SITU, "run", self.model, "-n", "2", "--greedy"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env={**os.environ, "SITU_CACHE_DIR": ""}) as process:
            self.assertIn("waiting for standard input", process.stderr.readline())
            out, err = process.communicate("Hi\n", timeout=cli_case.PATIENCE)
            self.assertEqual(process.returncode, 0, err)
            self.assertTrue(out)

    def test_no_prompt(self):
        for arguments in ((), ("--greedy",)):
            self.text(*arguments, code=2)
            self.assertRegex(self.err, r"\Asitu: no prompt: [^\n]*situ chat [^\n]*\n\Z")
        terminal = Terminal("run", self.model)
        code, err = terminal.end()
        self.assertEqual(code, 2)
        self.assertIn(f"situ chat {self.model}", err)
        for arguments, word in ((("Hi", "--prompt", "x"), "two prompts"), (("-f", "x", "--prompt-ids", "1"), "two prompts"), (("",), "empty"), (("-f", self.folder / "none"), "none"), (("-f", os.devnull), "empty"),
                                (("Hi", "you"), "one argument too many"), (("Hi", "--raw", "--chat"), "--raw")):
            with self.subTest(arguments):
                self.assertEqual(self.text(*arguments, code=2), "")
                self.assertIn(word, self.err)

    def test_an_empty_answer_is_told(self):
        eos = self.folder / "eos"
        shutil.copytree(self.model, eos)
        ids = json.loads(self.text("Hi", "--greedy", "--json"))["output_ids"]
        (eos / "generation_config.json").write_text(json.dumps({"eos_token_id": ids[0]}))
        for arguments, word in ((("Hi", "--greedy"), "at once"), (("--prompt", "u:Hi;a:"), "without --prompt")):
            run = Run("run", eos, *arguments, "-n", 4)
            self.assertEqual((run.code, run.out), (0, "\n"), run)
            self.assertRegex(run.err, rf"\Asitu: note: the answer is empty: [^\n]*{word}[^\n]*\n\[")
        run = Run("run", self.model, "Hi", "--greedy", "-n", 4, "--stop", chr(32 + ids[0]))
        self.assertIn("note: the answer is empty", run.err)


class DrawTest(FirstTest):
    """Which model draws: a message is asked for 4 tokens, whose seed is in --json where they were drawn."""

    def of(self, *arguments, files=None, name="Hi"):
        folder = self.folder / f"draws-{len(list(self.folder.iterdir()))}"
        shutil.copytree(self.model, folder)
        for file, content in (files or {}).items():
            if file == "genai_config.json":
                content = {"model": {"decoder": {"filename": "model.onnx"}}, "search": content}
            (folder / file).write_text(json.dumps(content))
        return json.loads(self.text(name, "--json", *arguments, model=folder))

    def test_silent_files(self):
        for files in ({}, {"generation_config.json": {"eos_token_id": 95}}, {"genai_config.json": {"do_sample": False, "temperature": 1.0, "top_k": 1, "top_p": 1.0}}):
            with self.subTest(files):
                answers = [self.of(files=files) for _ in range(4)]
                self.assertTrue(all(isinstance(a["seed"], int) for a in answers))
                again = self.of("--seed", answers[0]["seed"], files=files)
                self.assertEqual(again["output_ids"], answers[0]["output_ids"])
                explicit = self.of("--raw", "--temperature", 0.7, "--top-p", 0.95, "--top-k", 50, "--seed", 7, files=files, name="u:Hi;a:")
                self.assertEqual(self.of("--seed", 7, files=files)["output_ids"], explicit["output_ids"])

    def test_files_that_speak(self):
        raw = lambda *options: self.of("--raw", "--seed", 5, *options, name="u:Hi;a:")["output_ids"]
        for files, options in (({"generation_config.json": {"do_sample": True, "temperature": 3.0, "top_k": 5}}, ("--temperature", 3, "--top-k", 5)),
                               ({"generation_config.json": {"temperature": 3.0}}, ("--temperature", 3)),
                               ({"genai_config.json": {"do_sample": True, "temperature": 3.0, "top_k": 5, "top_p": 1.0}}, ("--temperature", 3, "--top-k", 5))):
            with self.subTest(files):
                self.assertEqual(self.of("--seed", 5, files=files)["output_ids"], raw(*options))
        self.assertNotIn("seed", self.of(files={"generation_config.json": {"do_sample": False}}))

    def test_what_is_said_holds(self):
        for arguments in (("--greedy",), ("--temperature", 0), ("--beams", 2)):
            self.assertNotIn("seed", self.of(*arguments), arguments)
        self.assertEqual(self.of("--top-k", 1)["output_ids"], self.of("--greedy")["output_ids"])
        for name in ("--prompt", "u:Hi;a:"), ("--prompt", "Hi", "--chat"), ("--prompt-ids", "1,2"):
            self.assertNotIn("seed", json.loads(self.text(*name, "--json")), name)
        self.assertNotIn("seed", json.loads(self.text("Hi", "--json", model=self.plain)))
        self.assertNotIn("seed", json.loads(self.text("Hi", "--json", "--raw")))
        self.text("Hi", "--greedy", "--temperature", 1, code=2)

    def test_the_seed_is_in_the_line_of_figures(self):
        self.text("Hi", "--seed", 12)
        self.assertIn(", seed 12]", self.err)
        self.text("Hi", "--greedy")
        self.assertNotIn("seed", self.err)
        chat = subprocess.run([cli_case.SITU, "chat", self.model, "-n", "2", "--threads", "1"], input="Hi\nSo\n", capture_output=True, text=True, timeout=cli_case.PATIENCE, env={**os.environ, "SITU_CACHE_DIR": ""})
        self.assertEqual(len(re.findall(r", seed \d+\]", chat.stderr)), 2, chat.stderr)


class HelpTest(FirstTest):
    def out(self, *arguments):
        run = Run(*arguments)
        self.assertEqual((run.code, run.err), (0, ""), run)
        return run.out

    def test_nothing_is_a_first_help(self):
        lines = self.out().splitlines()
        self.assertEqual([line.split()[1] for line in lines if line.startswith("  situ ")], ["run", "chat", "serve", "transcribe", "embed", "check"])

    def test_help_and_version(self):
        self.assertEqual(self.out("-V"), self.out("--version"))
        project = re.search(r"project\(situ VERSION ([0-9.]+)", (Path(__file__).resolve().parent.parent / "CMakeLists.txt").read_text()).group(1)
        first, *facts = self.out("-V").splitlines()
        self.assertEqual(first, f"situ {project}")
        facts = dict(line.split(": ", 1) for line in facts)
        self.assertEqual(list(facts), ["commit", "compiler", "isa", "features"])
        self.assertRegex(facts["commit"], r"\A([0-9a-f]{12,40}(-dirty)?|unknown)\Z")
        self.assertRegex(facts["compiler"], r"\A(GCC|Clang) \d+\.")
        self.assertIn(facts["isa"].split(" (")[0], facts["isa"].split("runs ")[1].rstrip(")").split(", "))
        plain = Run("-V", SITU_ISA="portable").out
        self.assertIn("\nisa: portable (", plain)
        self.assertEqual(self.out("help"), self.out("--help"))
        for command in COMMANDS:
            with self.subTest(command):
                text = self.out("help", command)
                self.assertEqual(text, self.out(command, "--help"))
                self.assertLessEqual(len(text.splitlines()), 40)
                self.assertIn(f"situ {command}", text)
                self.assertLessEqual(max(map(len, text.splitlines())), 120)
                everything = self.out(command, "--help-all") if command != "cache" else text
                named = set(re.findall(r"^  (?:-\w, |    )(--[\w-]+)", everything, re.M))
                self.assertEqual(set(re.findall(r"^  (?:-\w, |    )(--[\w-]+)", text, re.M)) - named, set())
        self.assertEqual(self.out("help", "cache", "prune"), self.out("cache", "prune", "--help"))

    def test_defaults_are_those_that_hold(self):
        for command, tokens in (("run", 128), ("chat", 1024)):
            self.assertRegex(self.out(command, "--help"), rf"-n, --tokens N +Most tokens of the answer \[default: {tokens}\]")
        self.assertRegex(self.out("serve", "--help-all"), r"--queue N [^\n]*\[default: 1000\]")
        self.assertRegex(self.out("transcribe", "--help-all"), r"--beams N [^\n]*\[default: 1\]")

    def test_every_command_has_the_options_of_loading(self):
        options = {"--threads", "--context", "--memory", "--slots", "--chunk", "--window", "--sink", "--kv-type", "--variant", "--no-pack-cache", "--naive", "--offline"}
        for command in ("run", "chat", "serve", "transcribe", "embed", "batch", "check", "inspect", "bench", "perplexity"):
            self.assertEqual(options - set(re.findall(r"--[\w-]+", self.out(command, "--help-all"))), set(), command)

    def test_words_that_are_nearly_known(self):
        for arguments, words in ((("rnu", "x"), ["'rnu' is no command; did you mean 'run'?"]), (("frobnicate",), ["is no command: run, chat"]), (("help", "srve"), ["did you mean 'serve'?"]),
                                 (("run", self.model, "--promt", "hi"), ["there is no option --promt; did you mean '--prompt'?"]), (("chat", self.model, "--temprature=1"), ["did you mean '--temperature'?"]),
                                 (("run", self.model, "--frobnicate", "hi"), ["there is no option --frobnicate; situ run --help-all"]), (("run", "smolm2", "hi"), ["did you mean the model 'smollm2'"]),
                                 (("cache", "prnue"), ["prnue"]), (("run",), ["model is required: situ run MODEL [PROMPT]"])):
            with self.subTest(arguments):
                self.refused(Run(*arguments), *words)

    def test_exit_codes_are_listed(self):
        listed = re.findall(r"^  (\d+) ", self.out("help"), re.M)
        self.assertEqual(listed, ["0", "1", "2", "130", "141", "143"])


class EarlyTest(FirstTest):
    """What is wrong with options and files is told before a model is opened: that of the test waits for ever."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.waits = cls.folder / "waits"
        cls.waits.mkdir()
        os.mkfifo(cls.waits / "model.onnx")

    def test_options(self):
        for arguments, word in ((("-n", "abc"), "'abc' is not an integer"), (("-n", "0"), "range"), (("--top-p", 2), "top_p"), (("--temperature", "x"), "'x' is not a number"),
                                (("--temperature", -1), "temperature"), (("--typical-p", 0), "typical_p"), (("--json-schema", "{"), "json_schema"), (("--json-schema", '{"type": "nothing"}'), "json_schema"), (("--regex", "("), "regex"),
                                (("--grammar", "start"), "grammar"), (("--regex", "a", "--beams", 2), "beams"), (("--min-new-tokens", 9, "-n", 2), "min_new_tokens"), (("--image", self.folder / "none.png"), "none.png"), (("--audio", self.folder), "folder"),
                                (("--kv-type", "f8"), "'f8' is none of auto|f32"), (("--memory", "2 parsecs"), "--memory: '2 parsecs' is not a size"), (("--sink", 2), "--window"), (("--prefix-cache", "some"), "none of off|prompts|all"),
                                (("--beams", 2, "--num-return", 3), "num_return")):
            with self.subTest(arguments):
                self.refused(Run("run", self.waits, "Hi", *arguments), word)
        self.refused(Run("run", self.waits), "no prompt")
        self.refused(Run("chat", self.waits, "--json-schema", "{"), "json_schema")
        self.refused(Run("transcribe", self.waits, self.folder / "none.wav"), "none.wav")


class KindTest(FirstTest):
    def test_the_command_for_a_model_is_named(self):
        speech = tiny_speech.write_folder(self.folder / "speech", tiny_speech.make_weights(1))
        embeds = tiny_encoders.write(self.folder / "encoder", tiny_encoders.encoder(tiny_encoders.weights()))
        for model, command, word in ((speech, ("run", "Hi"), "situ transcribe"), (speech, ("chat",), "situ transcribe"), (speech, ("bench",), "situ transcribe"), (embeds, ("run", "Hi"), "situ embed"), (embeds, ("chat",), "situ embed"),
                                     (embeds, ("bench",), "situ embed"), (embeds, ("transcribe", __file__), "situ embed"), (self.model, ("transcribe", __file__), "situ run"), (self.model, ("embed", "Hi"), "situ run"),
                                     (self.plain, ("chat",), "situ run")):
            with self.subTest(command, model=model.name):
                self.refused(Run(command[0], model, *command[1:]), word, model)


class CheckTest(FirstTest):
    def test_what_to_type_next(self):
        run = Run("check", self.model)
        self.assertEqual(run.out.splitlines()[-1], f'Run it: situ run {self.model} "..."', run)
        self.assertIn("float32", run.out)
        self.assertIn("a chat template", run.out)
        odd = self.folder / "it's odd"
        shutil.copytree(self.model, odd)
        command = Run("check", odd).out.splitlines()[-1].removeprefix("Run it: ")
        self.assertEqual(subprocess.run(["sh", "-c", f"printf '%s\\n' {command}"], capture_output=True, text=True).stdout.splitlines(), ["situ", "run", str(odd), "..."])

    def test_a_page_of_facts(self):
        page, full = (json.loads(Run("check", self.model, option).out) for option in ("--json", "--json=full"))
        self.assertEqual(set(full) - set(page), {"programs", "states", "recognised"})
        self.assertLess(len(json.dumps(page)), 2000)
        self.assertEqual((page["runs"], page["precision"], page["context_length"], page["chat_template"], page["run"]), (True, "float32", tiny_models.CONTEXT, True, f'situ run {self.model} "..."'))
        self.assertGreater(page["memory_at_full_context"], page["weight_bytes"])
        self.refused(Run("check", self.model, "--json=some"), "none of facts, full")


class ProgressTest(FirstTest):
    """A terminal sees what takes long; a pipe does not."""

    def err_on_a_terminal(self, *arguments):
        master, slave = cli_case.open_terminal()
        with subprocess.Popen([cli_case.SITU, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=slave, env={**os.environ, "SITU_CACHE_DIR": ""}) as process:
            os.close(slave)
            seen = b""
            while True:
                try:
                    piece = os.read(master, 4096)
                except OSError:
                    break
                if not piece:
                    break
                seen += piece
            process.stdout.read()
            self.assertEqual(process.wait(cli_case.PATIENCE), 0, seen)
        os.close(master)
        return seen.decode()

    def test_loading(self):
        """A tokenizer of so many words that reading it takes a while."""
        model = self.folder / "words"
        shutil.copytree(self.model, model)
        words = json.loads((model / "tokenizer.json").read_text())
        words["model"]["vocab"] |= {f"word{i}": 1000 + i for i in range(600_000)}
        (model / "tokenizer.json").write_text(json.dumps(words))
        seen = self.err_on_a_terminal("run", model, "Hi", "-n", 2, "--greedy", "--threads", 1)
        self.assertRegex(seen, rf"loading {model}: [\d.]+ MiB in memory, \d+ s")

    def test_a_long_prompt(self):
        model = write_chat_model(self.folder / "long", TEMPLATE, context=1 << 17)
        text = "ab " * 12000
        file = self.folder / "text"
        file.write_text(text)
        seen = self.err_on_a_terminal("run", model, "-f", file, "-n", 2, "--greedy", "--threads", 1, "--chunk", 16)
        self.assertRegex(seen, r"reading the prompt: \d+ of 3\d{4} tokens")
        run = Run("run", model, "-f", file, "-n", 2, "--greedy", "--chunk", 16)
        self.assertRegex(run.err, FIGURES)


class ExitTest(FirstTest):
    def test_sigterm(self):
        with subprocess.Popen([cli_case.SITU, "run", self.model, "--prompt", "Hi", "-n", str(1 << 30), "--ignore-eos", "--window", "40", "--threads", "1"], stdout=subprocess.PIPE, env={**os.environ, "SITU_CACHE_DIR": ""}) as process:
            process.stdout.read(5)
            process.send_signal(signal.SIGTERM)
            process.stdout.read()
            self.assertEqual(process.wait(cli_case.PATIENCE), 143)

    def test_a_reader_that_leaves(self):
        read, write = os.pipe()
        with subprocess.Popen([cli_case.SITU, "run", self.model, "--prompt", "Hi", "-n", str(1 << 30), "--ignore-eos", "--window", "40", "--threads", "1"], stdout=write, stderr=subprocess.PIPE, env={**os.environ, "SITU_CACHE_DIR": ""}) as process:
            os.close(write)
            os.read(read, 1)
            os.close(read)
            self.assertEqual((process.stderr.read(), process.wait(cli_case.PATIENCE)), (b"", 141))

    def test_the_world_outside(self):
        with open("/dev/full", "w") as full:
            with subprocess.Popen([cli_case.SITU, "run", self.model, "--prompt", "Hi", "-n", "3"], stdout=full, stderr=subprocess.PIPE, env={**os.environ, "SITU_CACHE_DIR": ""}) as process:
                self.assertIn(b"standard output cannot be written", process.stderr.read())
                self.assertEqual(process.wait(cli_case.PATIENCE), 1)

    def test_memory_of_the_machine(self):
        """Weights that have no room in it are no fault of the model."""
        def limit(bytes):
            resource.setrlimit(resource.RLIMIT_AS, (bytes, bytes))

        codes = set()
        for mebibytes in range(80, 240, 20):
            done = subprocess.run([cli_case.SITU, "run", self.model, "--prompt", "Hi", "-n", "1", "--threads", "1"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=cli_case.PATIENCE, env={**os.environ, "SITU_CACHE_DIR": ""}, preexec_fn=functools.partial(limit, mebibytes << 20))
            if "cannot reserve" in done.stderr:
                codes.add(done.returncode)
        self.assertEqual(codes, {1})


if __name__ == "__main__":
    main()
