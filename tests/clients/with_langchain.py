"""What langchain-openai makes of a server: with_langchain.py SERVER_URL"""
import asyncio
import sys
import unittest

import openai
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel, Field

URL = sys.argv[1] + "/v1"
MODEL = "smollm2-135m-instruct"


class Answer(BaseModel):
    """An answer to the user."""

    yes: bool = Field(description="whether it is so")
    number: int = Field(ge=0, le=9)


@tool
def weather(city: str, days: int) -> str:
    """The weather of a city."""
    return f"4 degrees in {city} for {days} days 1"


def chat(**options):
    return ChatOpenAI(**{"model": MODEL, "base_url": URL, "api_key": "none", "max_tokens": 8, "temperature": 0, "max_retries": 0, **options})


class LangchainTest(unittest.TestCase):
    def test_messages(self):
        whole = chat().invoke("Hi")
        self.assertTrue(whole.content)
        self.assertLessEqual(whole.usage_metadata["output_tokens"], 8)
        self.assertEqual(whole.response_metadata["model_name"], MODEL)
        self.assertEqual("".join(piece.content for piece in chat().stream("Hi")), whole.content)
        self.assertEqual([a.content for a in chat().batch(["Hi", "Hi"])], [whole.content] * 2)
        spoken = [SystemMessage("Be brief."), HumanMessage("Hi"), AIMessage("Hello"), HumanMessage([{"type": "text", "text": "And"}])]
        self.assertTrue(chat().invoke(spoken, stop=["\x01"]).content)
        chain = ChatPromptTemplate.from_messages([("system", "Answer in {language}."), ("user", "{text}")]) | chat() | StrOutputParser()
        self.assertIsInstance(chain.invoke({"language": "German", "text": "Hi"}), str)

    def test_options(self):
        told = chat(seed=3, temperature=0.7, top_p=0.9, frequency_penalty=0.1, presence_penalty=0.1, logprobs=True, top_logprobs=2).invoke("Hi")
        tokens = told.response_metadata["logprobs"]["content"]
        self.assertEqual([len(t["top_logprobs"]) for t in tokens], [2] * told.usage_metadata["output_tokens"])
        several = chat(n=2, temperature=1.0).generate([[HumanMessage("Hi")]])
        self.assertEqual(len(several.generations[0]), 2)
        plain = chat(reasoning_effort="low", service_tier="auto", model_kwargs={"user": "me"}).invoke("Hi")
        self.assertEqual(plain.content, chat().invoke("Hi").content)

    def test_usage_of_a_stream(self):
        *_, last = pieces = list(chat(stream_usage=True).stream("Hi"))
        whole = pieces[0]
        for piece in pieces[1:]:
            whole += piece
        self.assertEqual(whole.usage_metadata["total_tokens"], whole.usage_metadata["input_tokens"] + whole.usage_metadata["output_tokens"])
        self.assertGreater(whole.usage_metadata["output_tokens"], 0)

    def test_structured_output(self):
        asked = chat(max_tokens=200).with_structured_output(Answer, method="json_schema")
        self.assertIsInstance(asked.invoke("Hi"), Answer)
        raw = chat(max_tokens=200).with_structured_output(Answer, method="json_schema", strict=True, include_raw=True).invoke("Hi")
        self.assertIsNone(raw["parsing_error"])
        self.assertIsInstance(raw["parsed"], Answer)

    def test_tools(self):
        asked = chat(model="agent", max_tokens=200).bind_tools([weather])
        whole = asked.invoke("? 2")
        self.assertEqual([(c["name"], c["args"]) for c in whole.tool_calls], [("weather", {"city": "Oslo", "days": 3})])
        self.assertEqual(whole.response_metadata["finish_reason"], "tool_calls")
        joined = None
        for piece in asked.stream("? 2"):
            joined = piece if joined is None else joined + piece
        self.assertEqual([(c["name"], c["args"]) for c in joined.tool_calls], [("weather", {"city": "Oslo", "days": 3})])
        forced = chat(model="agent", max_tokens=200).with_structured_output(Answer, method="function_calling")
        self.assertEqual(forced.invoke("? 4"), Answer(yes=True, number=7))

    def test_an_agent(self):
        for streaming in (False, True):
            with self.subTest(streaming=streaming):
                agent = create_agent(chat(model="agent", max_tokens=200, streaming=streaming), [weather])
                _, called, result, last = agent.invoke({"messages": [HumanMessage("? 2")]})["messages"]
                self.assertEqual([(c["name"], c["args"]) for c in called.tool_calls], [("weather", {"city": "Oslo", "days": 3})])
                self.assertEqual((result.content, last.content), ("4 degrees in Oslo for 3 days 1", "It is cold there today."))

    def test_async(self):
        async def ask():
            whole = await chat().ainvoke("Hi")
            pieces = [piece.content async for piece in chat().astream("Hi")]
            self.assertEqual("".join(pieces), whole.content)
            async for _ in chat(max_tokens=10**9, model="endless", extra_body={"ignore_eos": True}).astream("Hi"):
                break  # leaves

        asyncio.run(ask())

    def test_errors(self):
        with self.assertRaises(openai.NotFoundError):
            chat(model="other").invoke("Hi")
        with self.assertRaises(openai.BadRequestError):
            chat(temperature=-1).invoke("Hi")
        # It looks for the error's code in the text of the client's exception, which has the message alone.
        with self.assertRaises(openai.BadRequestError) as caught:
            chat().invoke("a" * 5000)
        self.assertEqual(caught.exception.code, "context_length_exceeded")

    def test_embeddings(self):
        embeddings = OpenAIEmbeddings(model="encoder", base_url=URL, api_key="none", check_embedding_ctx_length=False)
        two = embeddings.embed_documents(["harbour", "quiet"])
        self.assertEqual(len(two), 2)
        for x, y in zip(embeddings.embed_query("quiet"), two[1], strict=True):
            self.assertAlmostEqual(x, y, places=6)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
