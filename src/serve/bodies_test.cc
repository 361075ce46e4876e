// Answers in pieces are the same answers; the table of fields is JSON; bodies that are no JSON are told.
#include "serve/bodies.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "onnx/test_model.h"
#include "serve/answering.h"
#include "serve/media_bytes.h"
#include "serve/openai_errors.h"
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
  const std::pair<Route, const char*> bodies[] = {
      {Route::kChat, R"({"messages": [{"role": "user", "content": "ab"}], "max_tokens": 6})"},
      {Route::kChat, R"({"messages": [{"role": "user", "content": "ab"}], "max_tokens": 9, "n": 3, "temperature": 1,
                         "seed": 4, "logprobs": true, "top_logprobs": 2, "prompt_logprobs": 1})"},
      {Route::kChat, R"({"messages": [{"role": "user", "content": "a"}], "stop": "ef", "logprobs": true})"},
      {Route::kChat, R"({"messages": [{"role": "user", "content": "a"}], "num_beams": 3, "n": 2, "max_tokens": 4})"},
      {Route::kCompletions, R"({"prompt": ["ab", "c"], "max_tokens": 5, "n": 2, "logprobs": 1, "temperature": 1})"},
      {Route::kCompletions, R"({"prompt": "abc", "max_tokens": 5, "echo": true})"},
      {Route::kCompletions, R"({"prompt": "abc", "max_tokens": 0, "echo": true, "logprobs": 1})"},
      {Route::kCompletions, R"({"prompt": [5], "max_tokens": 1})"},
      {Route::kChat, R"({"messages": [{"role": "user", "content": "a"}], "stop_token_ids": [1], "logprobs": true})"},
      {Route::kCompletions, R"({"prompt": "a", "stop_token_ids": [1], "logprobs": 1})"}};
  for (const auto& [route, text] : bodies) {
    const Json body = std::get<Json>(parse_body(text));
    OrRefusal<Asked> read = read_body(route, body, model);
    ASSERT_TRUE(std::holds_alternative<Asked>(read)) << std::get<Refusal>(read).message;
    const Asked& asked = std::get<Asked>(read);
    BodyStream stream(model, asked, {"id", 7, "name"});
    std::vector<Generation> results;
    std::vector<Json> chunks;
    const auto add = [&](const std::vector<Json>& more) { chunks.insert(chunks.end(), more.begin(), more.end()); };
    for (size_t i = 0; i < asked.requests.size(); ++i) {
      Result<Ticket> ticket = model.submit(asked.requests[i]);
      ASSERT_TRUE(ticket.is_ok()) << ticket.status().message();
      add(stream.begin(i));
      while (const std::optional<Event> token = ticket->next())
        if (std::optional<Json> chunk = stream.token(i, *token)) chunks.push_back(std::move(*chunk));
      const Result<Generation> g = ticket->result();
      ASSERT_FALSE(refusal_of(asked, g).has_value()) << text;
      add(stream.end(i, *g));
      results.push_back(*g);
    }
    const bool chat = route == Route::kChat;
    const Json whole = answer_body(model, asked, {"id", 7, "name"}, results);
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
    EXPECT_EQ(stream.usage()["usage"], whole["usage"]) << text;
    EXPECT_TRUE(stream.usage()["choices"].empty());
  }
}

// Half a character: the token's text is a replacement, and its bytes are its own.
TEST(Bodies, BytesOfHalfACharacter) {
  Model model = load();
  const Json body = std::get<Json>(parse_body(R"({"prompt_token_ids": [5], "max_tokens": 2, "logprobs": true})"));
  OrRefusal<Asked> read = read_body(Route::kChat, body, model);
  const Asked& asked = std::get<Asked>(read);
  const Result<Generation> g = model.submit(asked.requests[0])->result();
  const Json answer = answer_body(model, asked, {}, {&*g, 1});
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "\u00E9");
  const Json& content = answer["choices"][0]["logprobs"]["content"];
  EXPECT_EQ(content[0]["token"], "\uFFFD");
  EXPECT_EQ(content[0]["bytes"], Json::array({0xC3}));
  EXPECT_EQ(content[1]["bytes"], Json::array({0xA9}));
}

// Tokens that are parts of characters are told apart in maps by text, each with its own number.
TEST(Bodies, AlternativesOfHalfACharacter) {
  Model model = load();
  const Json body =
      std::get<Json>(parse_body(R"({"prompt": [4], "max_tokens": 3, "logprobs": 8, "echo": true, "temperature": 0})"));
  const Asked asked = std::get<Asked>(read_body(Route::kCompletions, body, model));
  const Result<Generation> g = model.submit(asked.requests[0])->result();
  const Json logprobs = answer_body(model, asked, {}, {&*g, 1})["choices"][0]["logprobs"];
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
    const Asked asked = std::get<Asked>(read_body(Route::kChat, std::get<Json>(parse_body(text)), model));
    const Result<Ticket> ticket = model.submit(asked.requests[0]);
    return ticket.is_ok() ? "" : refusal_of(asked, ticket.status()).option;
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
    const Json body = std::get<Json>(
        parse_body(R"({"prompt_token_ids": [0], "ignore_eos": true, "max_tokens": )" + std::string(most) + "}"));
    OrRefusal<Asked> read = read_body(Route::kChat, body, model);
    ASSERT_TRUE(std::holds_alternative<Asked>(read)) << std::get<Refusal>(read).message;
    const Result<Generation> g = model.submit(std::get<Asked>(read).requests[0])->result();
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

// What finds no room now may find it later: refused, or at the end of an answer.
TEST(Bodies, NoRoomIsNoFaultOfTheModel) {
  Model model = load();
  const Json body = std::get<Json>(parse_body(R"({"prompt_token_ids": [0], "max_tokens": 1})"));
  const Asked asked = std::get<Asked>(read_body(Route::kChat, body, model));
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
  bool begin_events(Call&) override { return true; }
  bool send(Call&, std::string_view) override { return true; }
  void end(Call&) override {}
  void wake(Call&) noexcept override {}
  Metrics& metrics() override { throw std::bad_alloc(); }
};

// Who was told of a failure hears nothing of what comes later.
TEST(Bodies, AnAnswerThatIsGivenUp) {
  Model model = load();
  const Json body = std::get<Json>(parse_body(R"({"prompt_token_ids": [0], "max_tokens": 3})"));
  for (const bool gives_up : {true, false}) {
    NoMemory client;
    Call call;
    OrRefusal<std::unique_ptr<Answering>> begun =
        Answering::begin(client, call, model, std::get<Asked>(read_body(Route::kChat, body, model)));
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
    return bytes_of_media({{"messages", {{{"content", Json::array({part, part})}}}}}, limits, files);
  };
  const Bytes first = {'f', 'i', 'r', 's', 't'}, inner = {'i', 'n', 'n', 'e', 'r'};
  EXPECT_TRUE(std::holds_alternative<int64_t>(measured("file:link")));
  EXPECT_EQ(left, 10);  // each part decodes its own
  std::filesystem::remove(folder / "a.png");
  std::filesystem::rename(all.path() / "outside", folder / "a.png");
  EXPECT_EQ(files.bytes("file:link"), first);
  EXPECT_EQ(files.bytes("file:link"), first);
  EXPECT_EQ(files.bytes("file:link"), std::nullopt);
  EXPECT_STREQ(words_of(std::get<Refusal>(measured("file:a.png"))).code, "limit_exceeded");
  const std::string nul("a.png\0.jpg", 10);
  for (const std::string& url :
       {std::string("file:out"), std::string("file:up/media/none"), std::string("file:pipe"), std::string("file:inner"),
        std::string("file:"), std::string("file:up/outside"), std::string("file:a.png%00.jpg"), "file:" + nul}) {
    EXPECT_TRUE(std::holds_alternative<int64_t>(measured(url))) << url;
    EXPECT_EQ(files.bytes(url), std::nullopt) << url;
  }
  EXPECT_EQ(left, 10);
  EXPECT_TRUE(std::holds_alternative<int64_t>(measured("file:up/media/inner/b")));
  EXPECT_EQ(files.bytes("file:up/media/inner/b"), inner);
  EXPECT_EQ(words_of(std::get<Refusal>(measured("file:inner/b"))).status, 429);  // before it is read
}

TEST(Bodies, TheTableIsJson) {
  std::set<std::string> names;
  for (const BodyField& f : body_fields()) {
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
