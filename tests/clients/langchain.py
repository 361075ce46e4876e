"""What langchain-openai makes of a server: langchain.py SERVER_URL"""
import sys

from langchain_openai import ChatOpenAI, OpenAIEmbeddings

URL = sys.argv[1] + "/v1"
chat = ChatOpenAI(model="smollm2-135m-instruct", base_url=URL, api_key="none", max_tokens=8, temperature=0, max_retries=0)
whole = chat.invoke("Hi")
assert whole.content and whole.usage_metadata["output_tokens"] <= 8
assert "".join(piece.content for piece in chat.stream("Hi")) == whole.content
assert [a.content for a in chat.batch(["Hi", "Hi"])] == [whole.content] * 2
embeddings = OpenAIEmbeddings(model="encoder", base_url=URL, api_key="none", check_embedding_ctx_length=False)
assert len(embeddings.embed_documents(["harbour", "quiet"])) == 2
print("ok")
