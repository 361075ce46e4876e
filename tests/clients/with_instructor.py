"""What instructor makes of a server: with_instructor.py SERVER_URL"""
import sys

import instructor
import openai
from pydantic import BaseModel, Field


class Answer(BaseModel):
    yes: bool
    number: int = Field(ge=0, le=9)


client = instructor.from_openai(openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0), mode=instructor.Mode.JSON_SCHEMA)
answer = client.chat.completions.create(model="smollm2-135m-instruct", messages=[{"role": "user", "content": "Hi"}], response_model=Answer, max_tokens=200, max_retries=0)
assert isinstance(answer, Answer)
print("ok")
