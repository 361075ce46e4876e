// Answers in pieces are the same answers; the table of fields is JSON; bodies that are no JSON are told.
#include "serve/body_answer.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "onnx/test_model.h"
#include "serve/answering.h"
#include "serve/call_queue.h"
#include "serve/media_bytes.h"
#include "serve/media_files.h"
#include "serve/protocols/messages/messages.h"
#include "serve/protocols/openai/errors.h"
#include "serve/protocols/openai/openai.h"
#include "text/stop.h"
#include "text/test_models.h"

namespace situ::serve {
namespace {

constexpr int64_t kVocabulary = 8;

// A decoder that says after token i what row i of a table has: i + 1, or, less probably, i + 2. Its tokens are letters,
// and two that are half a character each.
std::string chain_model() {
  std::vector<float> table(kVocabulary * kVocabulary);
  for (int64_t i = 0; i < kVocabulary; ++i) {
    table[static_cast<size_t>(i * kVocabulary + (i + 1) % kVocabulary)] = 3;
    table[static_cast<size_t>(i * kVocabulary + (i + 2) % kVocabulary)] = 2;
  }
  return onnx::test::table_model(table, kVocabulary);
}

Model load() {
  const onnx::test::TempFolder folder;
  folder.write("model.onnx", chain_model());
  nlohmann::json vocab;
  for (int i = 0; i < 6; ++i) vocab[std::string(1, static_cast<char>('a' + i))] = i;
  vocab[byte_symbol(0xC3)] = 6, vocab[byte_symbol(0xA9)] = 7;
  nlohmann::json tokenizer = testing::tokenizer_json(vocab, nlohmann::json::array());
  tokenizer["pre_tokenizer"] = tokenizer["decoder"] = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  folder.write("tokenizer.json", tokenizer.dump());
  folder.write("tokenizer_config.json", R"({"chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}"})");
  LoadOptions options;
  options.context_length = 64;
  options.threads = 1;
  Result<Model> model = Model::load(folder.path().string(), options);
  EXPECT_TRUE(model.is_ok()) << model.status().message();
  return std::move(*model);
}

Json json_of(const std::string& text) { return std::get<Json>(parse_body(text)); }

// What a body asks for, and its requests.
struct Whole {
  Ask ask;
  std::vector<Request> requests;
};
Whole understood(const Protocol& protocol, const std::string& text, const Model& model) {
  OrRefusal<Ask> ask = protocol.read(json_of(text), model, {});
  if (const Refusal* f = std::get_if<Refusal>(&ask)) return ADD_FAILURE() << f->message << text, Whole{};
  OrRefusal<std::vector<Request>> requests = requests_of(std::get<Ask>(ask));
  if (const Refusal* f = std::get_if<Refusal>(&requests)) return ADD_FAILURE() << f->message << text, Whole{};
  return {std::move(std::get<Ask>(ask)), std::move(std::get<std::vector<Request>>(requests))};
}

// The text, log-probabilities and end of each choice, put together from pieces.
std::map<int64_t, Json> joined(const std::vector<Json>& chunks, bool chat) {
  std::map<int64_t, Json> found;
  for (const Json& chunk : chunks)
    for (const Json& c : chunk["choices"]) {
      Json& to = found[c["index"]];
      if (to.is_null()) to = {{"text", ""}, {"logprobs", nullptr}, {"finish_reason", nullptr}, {"prompt", nullptr}};
      to["text"] =
          to["text"].get<std::string>() + (chat ? c["delta"].value("content", "") : c["text"].get<std::string>());
      EXPECT_TRUE(to["finish_reason"].is_null()) << "the last piece has it";
      to["finish_reason"] = c["finish_reason"];
      if (c.contains("prompt_logprobs")) to["prompt"] = c["prompt_logprobs"];
      if (c["logprobs"].is_null()) continue;
      if (to["logprobs"].is_null()) to["logprobs"] = Json::object();
      for (const auto& [key, list] : c["logprobs"].items())
        for (Json& all = to["logprobs"].emplace(key, Json::array()).first.value(); const Json& one : list)
          all.push_back(one);
    }
  return found;
}

TEST(Bodies, PiecesAreTheWholeAnswer) {
  Model model = load();
  const std::pair<bool, const char*> bodies[] = {
      {true, R"({"messages": [{"role": "user", "content": "ab"}], "max_tokens": 6})"},
      {true, R"({"messages": [{"role": "user", "content": "ab"}], "max_tokens": 9, "n": 3, "temperature": 1,
                         "seed": 4, "logprobs": true, "top_logprobs": 2, "prompt_logprobs": 1})"},
      {true, R"({"messages": [{"role": "user", "content": "a"}], "stop": "ef", "logprobs": true})"},
      {true, R"({"messages": [{"role": "user", "content": "a"}], "num_beams": 3, "n": 2, "max_tokens": 4})"},
      {false, R"({"prompt": ["ab", "c"], "max_tokens": 5, "n": 2, "logprobs": 1, "temperature": 1})"},
      {false, R"({"prompt": "abc", "max_tokens": 5, "echo": true})"},
      {false, R"({"prompt": "abc", "max_tokens": 0, "echo": true, "logprobs": 1})"},
      {false, R"({"prompt": [5], "max_tokens": 1})"},
      {true, R"({"messages": [{"role": "user", "content": "a"}], "stop_token_ids": [1], "logprobs": true})"},
      {false, R"({"prompt": "a", "stop_token_ids": [1], "logprobs": 1})"}};
  for (const auto& [chat, text] : bodies) {
    const Protocol& protocol = chat ? chat_protocol() : completions_protocol();
    const auto [ask, requests] = understood(protocol, text, model);
    const Envelope envelope{"id", 7, "name"};
    const std::unique_ptr<Writer> writer = protocol.writer(model, ask, envelope);
    Telling telling(ask, true);
    std::vector<std::optional<Generation>> results;
    std::vector<Out> outs;
    for (size_t i = 0; i < requests.size(); ++i) {
      Result<Ticket> ticket = model.submit(requests[i]);
      ASSERT_TRUE(ticket.is_ok()) << ticket.status().message();
      telling.begin(i, outs);
      while (const std::optional<Event> token = ticket->next()) telling.event(i, *token, outs);
      const Result<Generation> g = ticket->result();
      ASSERT_FALSE(refusal_of(ask, g).has_value()) << text;
      telling.end(i, *g, outs);
      results.push_back(*g);
    }
    outs.push_back({0, telling.finished(), {}});
    std::vector<Piece> written;
    for (const Out& out : outs) writer->put(out, written);
    std::vector<Json> chunks;
    for (const Piece& piece : written) chunks.push_back(Json::parse(piece.json));
    const Json whole = whole_of(model, protocol, ask, envelope, results);
    const std::map<int64_t, Json> pieces = joined(chunks, chat);
    ASSERT_EQ(pieces.size(), whole["choices"].size()) << text;
    for (const Json& c : whole["choices"]) {
      const Json& p = pieces.at(c["index"]);
      EXPECT_EQ(p["text"], chat ? c["message"]["content"] : c["text"]) << text;
      EXPECT_EQ(p["finish_reason"], c["finish_reason"]) << text;
      EXPECT_EQ(p["prompt"], c.value("prompt_logprobs", Json())) << text;
      EXPECT_EQ(p["logprobs"].is_object(), c["logprobs"].is_object()) << text;
      for (const char* key : {"content", "tokens", "token_logprobs", "top_logprobs", "text_offset"}) {
        if (!c["logprobs"].is_object() || !c["logprobs"].contains(key)) continue;
        EXPECT_EQ(p["logprobs"][key], c["logprobs"][key]) << text;
      }
    }
    WholeAnswer folded;  // of what was told piece by piece
    for (const Out& out : outs) folded.put(out);
    EXPECT_EQ(protocol.whole(model, ask, envelope, folded), whole) << text;
  }
}

// The whole answer to a body of one prompt.
Json answer_to(const Protocol& protocol, const std::string& text, const Model& model) {
  const auto [ask, requests] = understood(protocol, text, model);
  std::vector<std::optional<Generation>> results;
  for (const Request& r : requests) results.push_back(*model.submit(r)->result());
  return whole_of(model, protocol, ask, {}, results);
}

// Half a character: the token's text is a replacement, and its bytes are its own.
TEST(Bodies, BytesOfHalfACharacter) {
  Model model = load();
  const Json answer =
      answer_to(chat_protocol(), R"({"prompt_token_ids": [5], "max_tokens": 2, "logprobs": true})", model);
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "\u00E9");
  const Json& content = answer["choices"][0]["logprobs"]["content"];
  EXPECT_EQ(content[0]["token"], "\uFFFD");
  EXPECT_EQ(content[0]["bytes"], Json::array({0xC3}));
  EXPECT_EQ(content[1]["bytes"], Json::array({0xA9}));
}

// Tokens that are parts of characters are told apart in maps by text, each with its own number.
TEST(Bodies, AlternativesOfHalfACharacter) {
  Model model = load();
  const Json logprobs = answer_to(completions_protocol(),
                                  R"({"prompt": [4], "max_tokens": 3, "logprobs": 8, "echo": true, "temperature": 0})",
                                  model)["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"], Json::parse(R"(["e", "f", "bytes:\\xc3", "bytes:\\xa9"])"));
  for (size_t i = 1; i < 4; ++i) {
    const Json& top = logprobs["top_logprobs"][i];
    EXPECT_EQ(top.size(), 8u);
    EXPECT_EQ(top[logprobs["tokens"][i].get<std::string>()], logprobs["token_logprobs"][i]);
  }
}

// The field whose option is refused is named by the check that refuses it, whatever words its message has.
TEST(Bodies, TheFieldOfAnOption) {
  Model model = load();
  const auto param = [&](const char* text) {
    const auto [ask, requests] = understood(chat_protocol(), text, model);
    const Result<Ticket> ticket = model.submit(requests[0]);
    return ticket.is_ok() ? "" : refusal_of(ask, ticket.status()).option;
  };
  EXPECT_EQ(param(R"({"prompt_token_ids": [0], "stop_token_ids": [99], "stop": "top_p"})"), "stop_token_ids");
  EXPECT_EQ(param(R"({"prompt_token_ids": [0], "num_beams": 2, "guided_regex": "a"})"), "guided_regex");
  EXPECT_EQ(param(R"({"prompt_token_ids": [0], "n_predict": 2, "min_tokens": 3})"), "n_predict");
  EXPECT_EQ(param(R"({"prompt_token_ids": [0], "structured_outputs": {"regex": "("}})"), "structured_outputs.regex");
  EXPECT_EQ(param(R"({"prompt_token_ids": [0], "format": {"type": "no"}})"), "format");
}

// More tokens than the context has are as many as it leaves, whatever the number.
TEST(Bodies, AnyNumberOfTokens) {
  Model model = load();
  for (const char* most : {"60", "1073741825", "9223372036854775807", "18446744073709551615"}) {
    const Whole whole =
        understood(chat_protocol(),
                   R"({"prompt_token_ids": [0], "ignore_eos": true, "max_tokens": )" + std::string(most) + "}", model);
    const Result<Generation> g = model.submit(whole.requests.at(0))->result();
    EXPECT_EQ(g->output_ids.size(), most == std::string("60") ? 60u : 64u);
    EXPECT_EQ(g->finish_reason, FinishReason::kLength);
  }
}

// Who takes another request in place of one hears nothing of that any more.
TEST(Bodies, ATicketThatIsReplaced) {
  Model model = load();
  const auto heard = std::make_shared<int>();
  const auto submit = [&] { return std::move(*model.submit({Prompt(std::vector<int64_t>{0}), {}})); };
  Ticket ticket = submit();
  ticket.on_ready([heard] {});
  ticket = submit();
  EXPECT_EQ(heard.use_count(), 1);
}

// A text that cannot fit the context is refused before it becomes tokens, whichever body has it; one whose tokens are
// counted is counted.
TEST(Bodies, LongTextsAreRefusedBeforeTheyBecomeTokens) {
  Model model = load();
  const std::string text((64 << 10) + 1, 'a');
  const std::string bodies[] = {R"({"messages": [{"role": "user", "content": ")" + text + "\"}]}",
                                R"({"prompt": ")" + text + "\"}", R"({"prompt": ["b", ")" + text + "\"]}"};
  const std::atomic<bool> ends{true};
  for (const std::string& body : bodies) {
    const Protocol& protocol = body.starts_with(R"({"messages)") ? chat_protocol() : completions_protocol();
    OrRefusal<Ask> ask = protocol.read(json_of(body), model, {});
    ASSERT_TRUE(std::holds_alternative<Ask>(ask)) << std::get<Refusal>(ask).message;
    if (body.starts_with("{\"prompt\": \"")) {
      const StopOfThread none(&ends);  // no tokenizer gives tokens, nor is a chat template rendered
      Ask stopped = std::get<Ask>(ask);
      const auto refused = requests_of(stopped);
      ASSERT_TRUE(std::holds_alternative<Refusal>(refused));
      EXPECT_EQ(std::get<Refusal>(refused).kind, Refusal::Kind::kContext) << std::get<Refusal>(refused).message;
    }
    const auto refused = requests_of(std::get<Ask>(ask));
    ASSERT_TRUE(std::holds_alternative<Refusal>(refused));
    EXPECT_EQ(std::get<Refusal>(refused).kind, Refusal::Kind::kContext);
    EXPECT_NE(std::get<Refusal>(refused).message.find("at least 65 tokens"), std::string::npos);
  }
  OrRefusal<Ask> counted = count_tokens_protocol().read(json_of(bodies[0]), model, {});
  ASSERT_TRUE(std::holds_alternative<Ask>(counted)) << std::get<Refusal>(counted).message;
  std::get<Ask>(counted).any_length = true;
  const auto requests = requests_of(std::get<Ask>(counted));
  ASSERT_TRUE(std::holds_alternative<std::vector<Request>>(requests)) << std::get<Refusal>(requests).message;
  EXPECT_EQ(std::get<Ask>(counted).prompts.at(0).tokens, (64 << 10) + 1);
}

// One word of a client does not wait behind all that another one has asked.
TEST(Bodies, ClientsTakeTurns) {
  CallQueue queue;
  std::string order;
  for (const char* name : {"a1", "a2", "a3", "b1", "a4", "c1", "b2"}) {
    auto call = std::make_shared<Call>();
    call->client = std::string(1, name[0]);
    call->request_id = name;
    queue.push(call);
  }
  for (int i = 0; i < 3; ++i) order += queue.pop()->request_id;
  auto late = std::make_shared<Call>();
  late->client = "d", late->request_id = "d1";
  queue.push(late);
  while (!queue.empty()) order += queue.pop()->request_id;
  EXPECT_EQ(order, "a1b1c1a2b2d1a3a4");
}

// What finds no room now may find it later: refused, or at the end of an answer.
TEST(Bodies, NoRoomIsNoFaultOfTheModel) {
  Model model = load();
  const Ask asked = understood(chat_protocol(), R"({"prompt_token_ids": [0], "max_tokens": 1})", model).ask;
  const auto expect = [&](const Refusal& refusal, int status, const char* code) {
    EXPECT_EQ(words_of(refusal).status, status) << refusal.message;
    EXPECT_STREQ(words_of(refusal).code, code);
    EXPECT_STREQ(words_of(refusal).type, status == 429 ? "rate_limit_exceeded" : "server_error");
    EXPECT_EQ(refusal.message, "why");
  };
  Generation failed;
  failed.finish_reason = FinishReason::kError;
  failed.error = "why";
  for (const auto& [code, status, name] : {std::tuple{Code::kNoRoom, 503, "overloaded"},
                                           {Code::kBusy, 429, "rate_limit_exceeded"},
                                           {Code::kInternal, 500, "model_failed"}}) {
    expect(refusal_of(asked, Status::error(code, "why")), status, name);
    failed.error_code = code;
    if (code != Code::kBusy) expect(*refusal_of(asked, Result<Generation>(failed)), status, name);
  }
}

// A client for whose tokens there is no memory.
class NoMemory final : public Client {
 public:
  int answers = 0;

 private:
  void respond(Call&, int, const Json&) override { ++answers; }
  void respond_json(Call&, int, std::string_view) override { ++answers; }
  void refuse_call(Call&, const Refusal&) override { ++answers; }
  bool begin_events(Call&) override { return true; }
  bool send(Call&, std::string_view) override { return true; }
  void end(Call&) override {}
  void wake(Call&) noexcept override {}
  Metrics& metrics() override { throw std::bad_alloc(); }
};

// Who was told of a failure hears nothing of what comes later.
TEST(Bodies, AnAnswerThatIsGivenUp) {
  Model model = load();
  for (const bool gives_up : {true, false}) {
    NoMemory client;
    Call call;
    Whole whole = understood(chat_protocol(), R"({"prompt_token_ids": [0], "max_tokens": 3})", model);
    OrRefusal<std::unique_ptr<Answering>> begun =
        Answering::begin(client, call, model, std::move(whole.ask), std::move(whole.requests));
    Answering& answering = *std::get<std::unique_ptr<Answering>>(begun);
    int failures = 0;
    for (int tries = 0; tries < 100 && !answering.ended(); ++tries) try {
        answering.advance();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      } catch (const std::bad_alloc&) {
        ++failures;
        if (gives_up) answering.give_up();
      }
    EXPECT_GE(failures, 1);
    answering.advance();
    EXPECT_EQ(client.answers, gives_up ? 0 : 1);
  }
}

// A file is what it was when it was measured, whatever its name means later.
TEST(Bodies, AFileIsReadOnce) {
  const onnx::test::TempFolder all;
  const std::filesystem::path folder = all.path() / "media";
  std::filesystem::create_directories(folder / "inner");
  all.write("outside", "outside");
  all.write("media/a.png", "first");
  all.write("media/inner/b", "inner");
  std::filesystem::create_symlink(folder / "a.png", folder / "link");
  std::filesystem::create_symlink(all.path() / "outside", folder / "out");
  std::filesystem::create_symlink(all.path(), folder / "up");
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  Limits limits;
  limits.body_bytes = 5;
  int64_t left = 20;
  MediaFiles files(folder.string(), [&](int64_t bytes) { return (left -= bytes) >= 0; });
  using Bytes = std::vector<uint8_t>;
  const auto measured = [&](const std::string& url) {
    const Json part = {{"type", "image_url"}, {"image_url", {{"url", url}}}};
    return read_files({{"messages", {{{"content", Json::array({part, part})}}}}}, limits, files);
  };
  const Bytes first = {'f', 'i', 'r', 's', 't'}, inner = {'i', 'n', 'n', 'e', 'r'};
  EXPECT_FALSE(measured("file:link"));
  EXPECT_EQ(left, 10);  // each part decodes its own
  std::filesystem::remove(folder / "a.png");
  std::filesystem::rename(all.path() / "outside", folder / "a.png");
  EXPECT_EQ(files.bytes("file:link"), first);
  EXPECT_EQ(files.bytes("file:link"), first);
  EXPECT_EQ(files.bytes("file:link"), std::nullopt);
  EXPECT_STREQ(words_of(measured("file:a.png").value()).code, "limit_exceeded");
  const std::string nul("a.png\0.jpg", 10);
  for (const std::string& url :
       {std::string("file:out"), std::string("file:up/media/none"), std::string("file:pipe"), std::string("file:inner"),
        std::string("file:"), std::string("file:up/outside"), std::string("file:a.png%00.jpg"), "file:" + nul}) {
    EXPECT_FALSE(measured(url)) << url;
    EXPECT_EQ(files.bytes(url), std::nullopt) << url;
  }
  EXPECT_EQ(left, 10);
  EXPECT_FALSE(measured("file:up/media/inner/b"));
  EXPECT_EQ(files.bytes("file:up/media/inner/b"), inner);
  EXPECT_EQ(words_of(measured("file:inner/b").value()).status, 429);  // before it is read
}

// -- events that no model has to make

// Two calls behind a thought and a text; the first `count` of them, then the end.
std::vector<Out> told_until(size_t count) {
  std::vector<Out> outs = {{0, Begun{5}},
                           {0, ReasoningPiece{"It is "}},
                           {0, ReasoningPiece{"\"far\"."}},
                           {0, TextPiece{"Let me"}},
                           {0, TextPiece{" look.\n"}},
                           {0, CallBegun{0, "weather"}},
                           {0, ArgumentsPiece{0, R"({"city": "O)"}},
                           {0, ArgumentsPiece{0, R"(slo", "days": 2})"}},
                           {0, CallEnded{0}},
                           {0, CallBegun{1, "now"}},
                           {0, ArgumentsPiece{1, "{}"}},
                           {0, CallEnded{1}}};
  const bool whole = count >= outs.size();
  outs.resize(std::min(count, outs.size()), Out{0, Begun{}});
  outs.push_back({0, Ended{whole ? FinishReason::kStop : FinishReason::kLength, 9}});
  outs.push_back({0, Finished{{5, 9, 2, 3}, std::nullopt}});
  return outs;
}

// A chat message put together from its pieces, as clients do. A call that has no end is one too.
Json joined_message(const std::vector<Piece>& pieces) {
  Json message = {
      {"content", ""}, {"reasoning_content", ""}, {"tool_calls", Json::array()}, {"finish_reason", nullptr}};
  for (const Piece& piece : pieces) {
    const Json choice = Json::parse(piece.json)["choices"][0];
    for (const auto& [key, value] : choice["delta"].items()) {
      if (key == "content" || key == "reasoning_content")
        message[key] = message[key].get<std::string>() + value.get<std::string>();
      if (key != "tool_calls") continue;
      const Json& call = value[0];
      Json& calls = message["tool_calls"];
      if (call["index"] == calls.size()) {
        EXPECT_EQ(call["type"], "function");
        EXPECT_TRUE(call["id"].get<std::string>().starts_with("call_"));
        calls.push_back(call["function"]);
      } else {
        EXPECT_FALSE(call.contains("id") || call["function"].contains("name")) << "sent once";
        Json& arguments = calls[call["index"].get<size_t>()]["arguments"];
        arguments = arguments.get<std::string>() + call["function"]["arguments"].get<std::string>();
      }
    }
    message["finish_reason"] = choice["finish_reason"];
  }
  return message;
}

// The blocks of a message put together from its events; the texts of calls stay texts. `open`: the last one has no end.
Json joined_blocks(const std::vector<Piece>& pieces, Json& end, bool& open) {
  Json blocks = Json::array();
  open = false;
  for (const Piece& piece : pieces) {
    const Json event = Json::parse(piece.json);
    EXPECT_EQ(event["type"], piece.event);
    if (piece.event == "content_block_start") {
      EXPECT_FALSE(open) << "each ends before the next one begins";
      open = true;
      EXPECT_EQ(event["index"], blocks.size());
      blocks.push_back(event["content_block"]);
      if (blocks.back().contains("input")) blocks.back()["input"] = "";
    } else if (piece.event == "content_block_delta") {
      Json& block = blocks.at(event["index"].get<size_t>());
      for (const char* key : {"text", "thinking", "signature", "partial_json"})
        if (event["delta"].contains(key)) {
          Json& to = block[key == std::string("partial_json") ? "input" : key];
          to = to.get<std::string>() + event["delta"][key].get<std::string>();
        }
    } else if (piece.event == "content_block_stop") {
      open = false;
    } else if (piece.event == "message_delta") {
      end = event["delta"];
    }
  }
  return blocks;
}

std::vector<Piece> written(const Protocol& protocol, const Model& model, const Ask& ask, const std::vector<Out>& outs) {
  std::vector<Piece> pieces;
  const std::unique_ptr<Writer> writer = protocol.writer(model, ask, {protocol.new_id(), 7, "name", 3, "", "fp_1"});
  writer->open(pieces);
  for (const Out& out : outs) writer->put(out, pieces);
  return pieces;
}

// What was told behind any event, whole and in pieces. SITU_WRITE_ANSWERS names a file that gets all of it, for the
// types of clients (tests/clients/validate.py).
TEST(Bodies, CallsAndReasoningByBothProtocols) {
  Model model = load();
  Json all = Json::array();
  for (size_t count = 1; count <= 12; ++count) {
    Ask ask;
    ask.by = &model;
    ask.prompts = {{5, 0, 1}};
    const std::vector<Out> outs = told_until(count);
    WholeAnswer folded;
    for (const Out& out : outs) folded.put(out);
    const size_t ended = count >= 12 ? 2 : count >= 9 ? 1 : 0, begun = count >= 10 ? 2 : count >= 6 ? 1 : 0;

    const std::vector<Piece> chunks = written(chat_protocol(), model, ask, outs);
    const Json chat = chat_protocol().whole(model, ask, {chat_protocol().new_id(), 7, "name", 3, "", "fp_1"}, folded);
    const Json joined = joined_message(chunks), message = chat["choices"][0]["message"];
    const Json calls = message.value("tool_calls", Json::array());
    EXPECT_EQ(joined["finish_reason"], chat["choices"][0]["finish_reason"]);
    EXPECT_EQ(joined["finish_reason"], count >= 12 ? "tool_calls" : "length");
    EXPECT_EQ(joined["reasoning_content"], message.value("reasoning_content", ""));
    EXPECT_EQ(message["content"].is_null(), count == 2 || count == 3);  // reasoning alone
    EXPECT_EQ(joined["content"], message["content"].is_null() ? Json("") : message["content"]);
    ASSERT_EQ(calls.size(), ended) << "a call that was cut is left out";
    EXPECT_EQ(joined["tool_calls"].size(), begun);
    for (size_t i = 0; i < ended; ++i) EXPECT_EQ(calls[i]["function"], joined["tool_calls"][i]);

    const std::vector<Piece> events = written(messages_protocol(), model, ask, outs);
    const Json whole = messages_protocol().whole(model, ask, {messages_protocol().new_id(), 7, "name", 3}, folded);
    Json end;
    bool open = false;
    const Json blocks = joined_blocks(events, end, open);
    EXPECT_EQ(open, begun > ended);
    EXPECT_EQ(blocks.size(), whole["content"].size() + (begun - ended));
    EXPECT_EQ(end["stop_reason"], whole["stop_reason"]);
    EXPECT_EQ(end["stop_reason"], count >= 12 ? "tool_use" : "max_tokens");
    for (size_t i = 0; i < whole["content"].size(); ++i) {
      Json block = whole["content"][i], streamed = blocks.at(i);
      if (block["type"] == "tool_use") {
        streamed["input"] = Json::parse(streamed["input"].get<std::string>());
        block.erase("id"), streamed.erase("id");
      }
      EXPECT_EQ(block, streamed);
    }
    const auto list = [](const std::vector<Piece>& pieces) {
      Json texts = Json::array();
      for (const Piece& piece : pieces) texts.push_back(Json::parse(piece.json));
      return texts;
    };
    all.push_back({{"chat", chat}, {"chunks", list(chunks)}, {"message", whole}, {"events", list(events)}});
  }
  if (const char* file = std::getenv("SITU_WRITE_ANSWERS")) std::ofstream(file) << all;
}

// Thinking is shown to who asked for it.
TEST(Bodies, ThinkingThatNobodyAskedFor) {
  Model model = load();
  Ask ask;
  ask.prompts = {{5, 0, 1}};
  ask.shows_reasoning = false;
  WholeAnswer folded;
  for (const Out& out : told_until(5)) folded.put(out);
  const Json whole = messages_protocol().whole(model, ask, {}, folded);
  EXPECT_EQ(whole["content"], Json::parse(R"([{"type": "text", "text": "Let me look.\n"}])"));
  for (const Piece& piece : written(messages_protocol(), model, ask, told_until(5)))
    EXPECT_EQ(piece.json.find("thinking"), std::string::npos) << piece.json;
}

// Bodies of Messages, and what they become.
TEST(Bodies, MessagesAreRead) {
  Model model = load();
  const OrRefusal<Ask> read = messages_protocol().read(
      json_of(R"({
    "max_tokens": 4, "stop_sequences": ["x", "y"], "temperature": 0.5, "top_k": 3,
    "metadata": {"user_id": "a"}, "odd": 1,
    "system": [{"type": "text", "text": "x-an)"
              R"(thropic-billing: 1"}, {"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
    "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object", "properties": {"k": {}}}},
              {"type": "web_search_20250305", "name": "web_search"}],
    "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": true},
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "messages": [{"role": "user", "content": "c"}, {"role": "user", "content": [{"type": "text", "text": "d"}]},
      {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "t", "signature": ""}, {"type": "text", "text": "e"},
        {"type": "tool_use", "id": "1", "name": "f", "input": {"k": [1]}},
        {"type": "tool_use", "id": "2", "name": "f", "input": {}}]},
      {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "r"}]},
        {"type": "tool_result", "tool_use_id": "2"}, {"type": "text", "text": "g"},
        {"type": "document", "source": {}}]}]})"),
      model, {});
  ASSERT_TRUE(std::holds_alternative<Ask>(read)) << std::get<Refusal>(read).message;
  const Ask& ask = std::get<Ask>(read);
  const std::vector<Message>& turns = std::get<Prompt>(ask.input).messages;
  std::string seen;
  for (const Message& turn : turns) {
    seen += turn.role + "[" + turn.tool_call_id + "]" + turn.reasoning;
    for (const Part& part : turn.parts) seen += "'" + part.text + "'";
    for (const ToolCall& call : turn.tool_calls) seen += call.id + call.name + call.arguments_json;
    seen += ";";
  }
  EXPECT_EQ(seen, "system[]'a\n\nb';user[]'c''d';assistant[]'e'1f{\"k\":[1]}2f{};tool[1]'r';tool[2]'';user[]'g';");
  ASSERT_EQ(ask.tools.size(), 1u);
  EXPECT_EQ(ask.tools[0].parameters_json, R"({"type":"object","properties":{"k":{}}})");
  EXPECT_TRUE(ask.tool_choice.kind == ToolChoice::Kind::kNamed && !ask.tool_choice.parallel && ask.shows_reasoning);
  EXPECT_EQ(ask.options.stop, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(ask.ignored.names(),
            (std::vector<std::string>{"odd", "tools[1]", "thinking", "messages[2].content[0] (thinking)",
                                      "messages[3].content[3] (document)"}));
}

// What a result says that is an error, and a body of which tokens are counted, strictly read.
TEST(Bodies, ErrorsOfResultsAndCountedBodies) {
  Model model = load();
  const Json body =
      json_of(R"({"max_tokens": 4, "stream": true, "stop_sequences": ["x"], "temperature": 0.5, "top_p": 1,
    "top_k": 3, "messages": [{"role": "user", "content": "c"},
      {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "boom", "is_error": true},
                                   {"type": "tool_result", "tool_use_id": "1", "content": "fine",
                                    "is_error": false}]}]})");
  BodyRules strict;
  strict.strict = true;
  const OrRefusal<Ask> read = count_tokens_protocol().read(body, model, strict);
  ASSERT_TRUE(std::holds_alternative<Ask>(read)) << std::get<Refusal>(read).message;
  EXPECT_TRUE(std::get<Ask>(read).ignored.names().empty());
  const std::vector<Message>& turns = std::get<Prompt>(std::get<Ask>(read).input).messages;
  ASSERT_EQ(turns.size(), 4u);
  ASSERT_EQ(turns[2].parts.size(), 2u);
  EXPECT_EQ(turns[2].parts[0].text + "|" + turns[2].parts[1].text, "Error:|boom");
  EXPECT_EQ(turns[3].parts.size(), 1u);
}

// Which field is wrong, and the words and statuses of errors.
TEST(Bodies, RefusalsOfMessages) {
  Model model = load();
  const std::string turn = R"("messages": [{"role": "user", "content": "a"}])";
  for (const auto& [text, option] : std::vector<std::pair<std::string, std::string>>{
           {"{" + turn + "}", "max_tokens"},
           {R"({"max_tokens": 1})", "messages"},
           {R"({"max_tokens": 1, "messages": [{"role": "tool", "content": "a"}]})", "messages[0].role"},
           {R"({"max_tokens": 1, "messages": [{"role": "user"}]})", "messages[0].content"},
           {R"({"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": 1}]}]})",
            "messages[0].content[0].type"},
           {R"({"max_tokens": 0, )" + turn + "}", "max_tokens"},
           {R"({"max_tokens": 1, "system": [{"type": "image"}], )" + turn + "}", "system[0]"},
           {R"({"max_tokens": 1, "thinking": {"type": "on"}, )" + turn + "}", "thinking.type"},
           {R"({"max_tokens": 1, "tools": [{"name": ""}], )" + turn + "}", "tools[0].name"},
           {R"({"max_tokens": 1, "tools": [{"name": "f"}, {"name": "f"}], )" + turn + "}", "tools[1].name"},
           {R"({"max_tokens": 1, "tools": [{"name": "f", "input_schema": 1}], )" + turn + "}", "tools[0].input_schema"},
           {R"({"max_tokens": 1, "tool_choice": {"type": "any"}, )" + turn + "}", "tool_choice"},
           {R"({"max_tokens": 1, "tool_choice": {"type": "tool", "name": "g"}, "tools": [{"name": "f"}], )" + turn +
                "}",
            "tool_choice"}}) {
    const OrRefusal<Ask> read = messages_protocol().read(json_of(text), model, {});
    ASSERT_TRUE(std::holds_alternative<Refusal>(read)) << text;
    EXPECT_EQ(std::get<Refusal>(read).option, option) << text;
  }
  using Kind = Refusal::Kind;
  for (const auto& [kind, status, type] : {std::tuple{Kind::kMissing, 400, "invalid_request_error"},
                                           {Kind::kKey, 401, "authentication_error"},
                                           {Kind::kForbidden, 403, "permission_error"},
                                           {Kind::kNoModel, 404, "not_found_error"},
                                           {Kind::kHost, 421, "invalid_request_error"},
                                           {Kind::kBusy, 529, "overloaded_error"},
                                           {Kind::kNoRoom, 503, "api_error"},
                                           {Kind::kFailed, 500, "api_error"}}) {
    const ErrorText error = protocol_of("/messages/none").error({kind, "x", "a \"b\""}, "req_1");
    EXPECT_EQ(error.status, status);
    EXPECT_EQ(Json::parse(error.json),
              Json({{"type", "error"}, {"error", {{"type", type}, {"message", "a \"b\""}}}, {"request_id", "req_1"}}));
  }
  const ErrorText large = messages_protocol().error({Kind::kHttp, "", "the body is too large", 413}, "");
  EXPECT_EQ(large.status, 413);
  EXPECT_EQ(Json::parse(large.json)["error"],
            Json({{"type", "request_too_large"}, {"message", "the body is too large"}}));
  EXPECT_EQ(chat_protocol().error({Kind::kHttp, "", "", 413}, "").status, 413);
  const ErrorText context = messages_protocol().error({Kind::kContext, "messages", "other words", 0, 70, 64}, "");
  EXPECT_EQ(Json::parse(context.json)["error"]["message"], "prompt is too long: 70 tokens > 64 maximum");
}

TEST(Bodies, TheTableIsJson) {
  std::set<std::string> names;
  std::vector<BodyField> fields(body_fields().begin(), body_fields().end());
  fields.insert(fields.end(), peer_fields().begin(), peer_fields().end());
  for (const BodyField& f : fields) {
    EXPECT_TRUE(names.insert(f.name).second) << f.name;
    EXPECT_TRUE(Json::parse(f.schema, nullptr, false).is_object()) << f.name;
    EXPECT_EQ(f.read != nullptr, f.use == BodyField::Use::kUsed || f.use == BodyField::Use::kOption) << f.name;
    EXPECT_TRUE(Json::parse(f.neutral, nullptr, false).is_array()) << f.name;
    EXPECT_TRUE(f.routes >= 1 && f.routes <= 3) << f.name;
  }
}

TEST(Bodies, WhatIsNoJson) {
  std::string deep(200, '['), many = R"({"a": 1)", values = R"({"a": [1)";
  for (int i = 0; i < 3000; ++i) many += ", \"k" + std::to_string(i) + "\": 1";
  for (int i = 0; i < (1 << 21) + 1; ++i) values += ",1";
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), std::string("3"), deep, many + "}", values + "]}",
        std::string(R"({"a": 1e999})"), std::string("{\"a\": \"\xFF\"}"), std::string("{\"a\": 1} x"),
        std::string(R"({"a": NaN})")}) {
    const OrRefusal<Json> read = parse_body(text);
    ASSERT_TRUE(std::holds_alternative<Refusal>(read)) << text.substr(0, 40);
    EXPECT_STREQ(words_of(std::get<Refusal>(read)).code, "invalid_json");
  }
  const std::string half = "the body is not JSON: \\ud83d in it is half of a surrogate pair",
                    large = "the body is not JSON: a number in it is too large";
  const std::tuple<const char*, std::string, const char*> unheld[] = {
      {R"({"a": "\ud83d"})", half, R"({"a":"\ufffd"})"},
      {R"({"\ud83d\u0041": 1})", half, R"({"\ufffdA":1})"},
      {R"({"a": ["\ud83d\ud83d\ude00"], "b": "\\ud83d 1e999"})", half,
       R"({"a":["\ufffd\ud83d\ude00"],"b":"\\ud83d 1e999"})"},
      {R"({"a": [-1e999, 2.5e1]})", large, R"({"a":[null,25.0]})"}};
  for (const auto& [text, message, mended] : unheld) {
    std::optional<Refusal> inside;
    EXPECT_EQ(std::get<Refusal>(parse_body(text)).message, message);
    EXPECT_EQ(std::get<Json>(parse_body(text, &inside)).dump(-1, ' ', true), mended);
    ASSERT_TRUE(inside) << text;
    EXPECT_EQ(inside->message, message);
  }
  std::optional<Refusal> inside;  // of a pair there is nothing to say, and what is no JSON stays so
  EXPECT_TRUE(std::holds_alternative<Json>(parse_body(R"({"a": "\ud83d\ude00"})", &inside)));
  EXPECT_TRUE(std::holds_alternative<Refusal>(parse_body(R"({"a": "\ud83d", "b": })", &inside)));
  EXPECT_FALSE(inside);
  EXPECT_EQ(to_json({Refusal::Kind::kNoPath, "", "no"}).dump(),
            R"({"error":{"message":"no","type":"invalid_request_error","param":null,"code":"unknown_url"}})");
}

}  // namespace
}  // namespace situ::serve
