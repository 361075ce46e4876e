"""What pydantic-ai makes of a server: with_pydantic_ai.py SERVER_URL"""
import asyncio
import sys
import unittest

from pydantic import BaseModel, Field
from pydantic_ai import Agent, Embedder, ModelHTTPError, NativeOutput
from pydantic_ai.embeddings.openai import OpenAIEmbeddingModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

PROVIDER = OpenAIProvider(base_url=sys.argv[1] + "/v1", api_key="none")
SHORT = {"max_tokens": 8, "temperature": 0.0}


class Answer(BaseModel):
    yes: bool
    number: int = Field(ge=0, le=9)


def weather(city: str, days: int) -> str:
    """The weather of a city."""
    return f"4 degrees in {city} for {days} days 1"


def agent(name="smollm2-135m-instruct", **options):
    return Agent(OpenAIChatModel(name, provider=PROVIDER), retries=0, **{"model_settings": SHORT, **options})


class PydanticAiTest(unittest.TestCase):
    def test_text(self):
        told = agent(instructions="Be brief.").run_sync("Hi")
        self.assertTrue(told.output)
        self.assertEqual(told.usage.output_tokens, 8)
        again = agent().run_sync("And?", message_history=told.all_messages())
        self.assertTrue(again.output)

    def test_options(self):
        settings = {"max_tokens": 8, "temperature": 0.7, "top_p": 0.9, "seed": 1, "presence_penalty": 0.1, "frequency_penalty": 0.1, "stop_sequences": ["\x01"],
                    "parallel_tool_calls": False, "timeout": 600, "openai_user": "me", "openai_logprobs": True, "openai_top_logprobs": 2}
        self.assertTrue(agent(model_settings=settings).run_sync("Hi").output)
        plain = agent(model_settings={**SHORT, "openai_reasoning_effort": "low", "openai_service_tier": "auto"}).run_sync("Hi")
        self.assertEqual(plain.output, agent().run_sync("Hi").output)

    def test_structured_output(self):
        told = agent(output_type=NativeOutput(Answer), model_settings={"max_tokens": 200}).run_sync("Hi")
        self.assertIsInstance(told.output, Answer)

    def test_tools(self):
        settings = {"max_tokens": 200, "temperature": 0.0}
        told = agent("agent", tools=[weather], model_settings=settings).run_sync("? 2")
        self.assertEqual(told.output, "It is cold there today.")
        results = [part.content for message in told.all_messages() for part in message.parts if part.part_kind == "tool-return"]
        self.assertEqual((results, told.usage.requests, told.usage.tool_calls), (["4 degrees in Oslo for 3 days 1"], 2, 1))
        typed = agent("agent", output_type=Answer, model_settings=settings).run_sync("? 3")  # by a tool that it makes of the type
        self.assertEqual(typed.output, Answer(yes=True, number=7))

        async def ask():
            async with agent("agent", tools=[weather], model_settings=settings).run_stream("? 2") as stream:
                self.assertEqual(await stream.get_output(), "It is cold there today.")

        asyncio.run(ask())

    def test_reasoning(self):
        told = agent("agent", model_settings={"max_tokens": 200, "temperature": 0.0}).run_sync("? 5")
        parts = [(part.part_kind, part.content) for part in told.all_messages()[-1].parts]
        self.assertEqual(parts, [("thinking", "A river, then."), ("text", "The Nile.")])

    def test_stream(self):
        async def ask():
            whole = await agent().run("Hi")
            async with agent().run_stream("Hi") as stream:
                pieces = [piece async for piece in stream.stream_text(delta=True)]
            self.assertEqual("".join(pieces), whole.output)
            self.assertEqual(stream.usage.output_tokens, whole.usage.output_tokens)

        asyncio.run(ask())

    def test_errors(self):
        for status, name, text in ((404, "other", "Hi"), (400, "smollm2-135m-instruct", "a" * 5000)):
            with self.subTest(status), self.assertRaises(ModelHTTPError) as caught:
                agent(name).run_sync(text)
            self.assertEqual(caught.exception.status_code, status)

    def test_embeddings(self):
        told = Embedder(OpenAIEmbeddingModel("encoder", provider=PROVIDER)).embed_documents_sync(["harbour", "quiet"])
        self.assertEqual(len(told.embeddings), 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
