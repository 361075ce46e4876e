"""`situ chat`: what its lines do, on a tiny model whose template writes each message on a line.

    python tests/chat_test.py --situ build/situ [unittest options]

Needs numpy and onnx (`make python`).
"""
import json
import os
import shutil
import signal
import subprocess
import time

import cli_case
from cli_case import CliTest, Run, main
from sampling_test import write_chat_model

TEMPLATE = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}a:"

class ChatTest(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = write_chat_model(cls.folder / "model", TEMPLATE)

    def chat(self, lines, *options):
        return subprocess.run([cli_case.SITU, "chat", self.model, "--ignore-eos", "-n", "4", "--threads", "1", *options], input="".join(line + "\n" for line in lines), capture_output=True, text=True,
                              timeout=cli_case.PATIENCE, env={**os.environ, "SITU_CACHE_DIR": ""})

    def reply(self, prompt):
        run = Run("run", self.model, "--prompt", prompt, "--ignore-eos", "-n", 4, "--threads", 1, "--json")
        self.assertEqual(run.code, 0, run)
        return json.loads(run.out)["text"]

    def test_conversation(self):
        """Every reply is that of a prompt of all messages before, of which what was there is kept."""
        first = self.reply("u:Hi;a:")
        second = self.reply(f"u:Hi;a:{first};u:So?;a:")
        for options in ((), ("--window", "50")):
            with self.subTest(options=options):
                answers = self.chat(["Hi", "So?", "/undo", "So?", "/regen", "/clear", "Hi"], *options)
                self.assertEqual((answers.returncode, answers.stdout.split("\n")), (0, [first, second, second, second, first, ""]), answers.stderr)
                self.assertEqual([line.split(" of them kept")[0].split(", ")[1] for line in answers.stderr.splitlines()], ["0", "10", "19", "19", "6"])
                self.assertEqual(answers.stderr.count("copied 0 B/token"), 5)

    def test_system_and_lines_that_go_on(self):
        answers = self.chat(["/system Be", "a\\", "b", "/system", "/undo", "c"], "--system", "No")
        self.assertEqual(answers.stdout.split("\n"), [self.reply("s:Be;u:a\nb;a:"), self.reply("u:c;a:"), ""])

    def test_replies_end_where_the_tokenizers_token_says_so(self):
        ids = [ord(c) - 32 for c in self.reply("u:Hi;a:")]

        def of(*arguments):
            answer = json.loads(Run("run", self.model, "-n", 4, "--json", *arguments).out)
            return answer["output_ids"], answer["finish_reason"]

        config = self.model / "tokenizer_config.json"
        before = config.read_text()
        config.write_text(json.dumps({"chat_template": TEMPLATE, "eos_token": chr(32 + ids[2])}))
        try:
            self.assertEqual(of("--prompt", "Hi", "--chat"), (ids[:2], "stop"))
            self.assertEqual(of("--prompt", "Hi", "--chat", "--ignore-eos"), (ids, "length"))
            self.assertEqual(of("--prompt", "u:Hi;a:"), (ids, "length"))
            answers = subprocess.run([cli_case.SITU, "chat", self.model, "-n", "4"], input="Hi\n", capture_output=True, text=True, timeout=cli_case.PATIENCE, env={**os.environ, "SITU_CACHE_DIR": ""})
            self.assertEqual(answers.stdout, "".join(chr(32 + i) for i in ids[:2]) + "\n")
        finally:
            config.write_text(before)

    def test_saved_conversations(self):
        path = self.folder / "saved.json"
        saved = self.chat(["Hi", f"/save {path}"])
        messages = json.loads(path.read_text())
        self.assertEqual(messages, [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": saved.stdout.rstrip("\n")}])
        self.assertEqual(self.chat([f"/load {path}", "/regen"]).stdout, saved.stdout)

    def test_errors_end_nothing(self):
        bad = self.folder / "bad.json"
        bad.write_text('[{"role": 1}]')
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        answers = self.chat(["/nope", "/undo", "/regen", "/load /nowhere", f"/load {self.folder}", f"/load {pipe}", "/load /dev/zero", f"/load {bad}", "/save /nowhere/x", "/save", "/load", "x" * 100, "Hi"])
        self.assertEqual((answers.returncode, answers.stdout.strip("\n")), (0, self.reply("u:Hi;a:")))
        errors = [line for line in answers.stderr.splitlines() if line.startswith("situ: ")]
        for error, word in zip(errors, ["/nope", "forget", "anew", "/nowhere", "a folder", "no file", "more than", "no conversation", "/nowhere/x", "/save needs", "/load needs", "context"], strict=True):
            self.assertIn(word, error)
        self.refused(Run("chat", self.folder / "none"), "none")
        self.refused(Run("chat", self.model, "--echo"), "--echo")  # the prompt is no part of the reply

    def test_a_file_that_is_made_shorter_ends_it_with_a_line(self):
        folder = self.folder / "shorter"
        shutil.copytree(self.model, folder)
        with subprocess.Popen([cli_case.SITU, "chat", folder, "-n", "4", "--threads", "2"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env={**os.environ, "SITU_CACHE_DIR": ""}) as process:
            process.stdin.write("Hi\n")
            process.stdin.flush()
            process.stderr.readline()  # the reply is done
            os.truncate(folder / "model.onnx", 100)
            out, err = process.communicate("So?\n", timeout=cli_case.PATIENCE)
            self.assertEqual((process.returncode, out), (2, self.reply("u:Hi;a:") + "\n"))
            self.assertEqual(err, f"situ: {folder / 'model.onnx'}: cannot be read any more; a file that is in use must not be made shorter\n")

    def test_interrupts_end_a_line(self):
        with subprocess.Popen([cli_case.SITU, "chat", self.model, "-n", "4", "--threads", "1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env={**os.environ, "SITU_CACHE_DIR": ""}) as process:
            process.stdin.write("Hi\n")
            process.stdin.flush()
            process.stderr.readline()  # the reply's: it waits for a line now
            time.sleep(0.2)
            process.send_signal(signal.SIGINT)
            time.sleep(0.2)
            out, _ = process.communicate("/exit\n", timeout=cli_case.PATIENCE)
            self.assertIn("/exit or Ctrl-D leaves", out)
            self.assertEqual(process.returncode, 0)

if __name__ == "__main__":
    main()
