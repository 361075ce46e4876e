"""The cases of tests/python_test.py that are in files of their own."""
from python_async import AsyncTest
from python_dialogs import DialogsTest
from python_ends import EndsTest
from python_errors import ErrorsTest
from python_examples import ExamplesTest
from python_hub import DocumentsTest, PullTest
from python_images import ImagesTest
from python_inputs import InputsTest
from python_openai import OpenAiTest
from python_prompts import PromptsTest

__all__ = ["AsyncTest", "DialogsTest", "DocumentsTest", "EndsTest", "ErrorsTest", "ExamplesTest", "ImagesTest", "InputsTest", "OpenAiTest", "PromptsTest", "PullTest"]
