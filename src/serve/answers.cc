// Answers, and their tokens as they come, as OpenAI's bodies have them.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "pipelines/llm.h"
#include "serve/bodies.h"
#include "text/decode_stream.h"

namespace situ::serve {
namespace {

constexpr double kMinusInfinity = -9999.0;  // JSON has no infinity
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

Json number(double logprob) { return std::isfinite(logprob) ? logprob : kMinusInfinity; }

int64_t characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

// The text of a token that is decoded alone; "": there is no tokenizer.
std::string token_text(const Model::Impl& m, int64_t id) {
  if (!m.tokenizer) return "";
  const Result<std::string> text = m.tokenizer->decode(std::span(&id, 1), false);
  return text.is_ok() ? *text : "";
}

// Its own bytes where it is a part of a character, else those of its text.
Json token_bytes(const Model::Impl& m, int64_t id, const std::string& text) {
  std::string bytes = text;
  if (m.tokenizer && text.find(kReplacement) != std::string::npos) bytes = m.tokenizer->bytes_of(id).value_or(text);
  Json list = Json::array();
  for (const char c : bytes) list.push_back(static_cast<unsigned char>(c));
  return list;
}

Json entry(const Model::Impl& m, int64_t id, double logprob) {
  const std::string text = token_text(m, id);
  return {{"token", text}, {"bytes", token_bytes(m, id, text)}, {"logprob", number(logprob)}};
}

Json chat_logprob(const Model::Impl& m, int64_t id, double logprob, const std::vector<TokenLogprob>& top) {
  Json one = entry(m, id, logprob);
  one["top_logprobs"] = Json::array();
  for (const TokenLogprob& t : top) one["top_logprobs"].push_back(entry(m, t.id, t.logprob));
  return one;
}

}  // namespace

// logprobs of completions, token by token.
class TextLogprobs {
 public:
  explicit TextLogprobs(const Model::Impl& m) : m_(m) {
    if (m.tokenizer) stream_.emplace(*m.tokenizer);
  }
  // `logprob`: none of the first token of a prompt.
  void add(int64_t id, std::optional<double> logprob, const std::vector<TokenLogprob>& top, bool alternatives) {
    const std::string text = name_of(id);
    json_["tokens"].push_back(text);
    json_["token_logprobs"].push_back(logprob ? number(*logprob) : Json());
    Json others;
    if (logprob && alternatives) {
      others = Json::object();
      for (const TokenLogprob& t : top) {
        const std::string own = t.id == id ? text : name_of(t.id);
        const bool taken = t.id != id && (own == text || others.contains(own));
        others.emplace(taken ? "token_id:" + std::to_string(t.id) : own, number(t.logprob));
      }
      others.emplace(text, number(*logprob));
    }
    json_["top_logprobs"].push_back(std::move(others));
    json_["text_offset"].push_back(offset_);
    if (!stream_) return;
    if (const Result<std::string> piece = stream_->push(id); piece.is_ok()) offset_ += characters(*piece);
  }
  // What was added since.
  Json take() { return std::exchange(json_, empty()); }

 private:
  // Its text; "bytes:\xe6\x97" where it is a part of a character, as OpenAI writes it: alternatives are told apart by
  // their texts alone.
  std::string name_of(int64_t id) const {
    std::string text = token_text(m_, id);
    if (!m_.tokenizer || text.find(kReplacement) == std::string::npos) return text;
    const std::optional<std::string> bytes = m_.tokenizer->bytes_of(id);
    if (!bytes || check_utf8(*bytes, "").is_ok()) return text;
    constexpr char kDigits[] = "0123456789abcdef";
    text = "bytes:";
    for (const char c : *bytes) {
      const auto byte = static_cast<unsigned char>(c);
      (text += "\\x") += {kDigits[byte >> 4], kDigits[byte & 15]};
    }
    return text;
  }
  static Json empty() {
    return {{"tokens", Json::array()},
            {"token_logprobs", Json::array()},
            {"top_logprobs", Json::array()},
            {"text_offset", Json::array()}};
  }
  const Model::Impl& m_;
  std::optional<DecodeStream> stream_;
  int64_t offset_ = 0;  // where the next token's text begins, in characters
  Json json_ = empty();
};

namespace {

Json prompt_logprobs(const Model::Impl& m, const Asked& asked, const Generation& g) {
  const auto count = static_cast<size_t>(*asked.prompt_logprobs);
  Json list = Json::array({nullptr});
  for (const Generation::PromptLogprob& p : g.prompt_logprobs) {
    Json top = Json::array();
    for (size_t i = 0; i < std::min(count, p.top.size()); ++i)
      top.push_back(
          {{"id", p.top[i].id}, {"token", token_text(m, p.top[i].id)}, {"logprob", number(p.top[i].logprob)}});
    list.push_back({{"id", p.id},
                    {"token", token_text(m, p.id)},
                    {"logprob", number(p.logprob)},
                    {"rank", p.rank},
                    {"top", std::move(top)}});
  }
  return list;
}

struct Choice {
  const std::string& text;
  const std::vector<int64_t>& ids;
  const std::vector<Generation::Logprobs>& logprobs;
  FinishReason reason;
};
std::vector<Choice> choices_of(const Generation& g) {
  if (g.answers.empty()) return {{g.text, g.output_ids, g.logprobs, g.finish_reason}};
  std::vector<Choice> all;
  for (const Generation::Answer& a : g.answers) all.push_back({a.text, a.output_ids, a.logprobs, a.finish_reason});
  return all;
}

Json chat_logprobs(const Model::Impl& m, const Choice& c) {
  Json content = Json::array();
  for (size_t i = 0; i < c.logprobs.size(); ++i)
    content.push_back(chat_logprob(m, c.ids[i], c.logprobs[i].logprob, c.logprobs[i].top));
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

std::vector<TokenLogprob> first_of(const std::vector<TokenLogprob>& top, int64_t count) {
  return {top.begin(), top.begin() + std::min<int64_t>(count, std::ssize(top))};
}

void add_prompt(const Asked& asked, const Prompt& prompt, const Generation& g, TextLogprobs& to) {
  if (!prompt.ids().empty()) to.add(prompt.ids()[0], std::nullopt, {}, false);
  for (const Generation::PromptLogprob& p : g.prompt_logprobs)
    to.add(p.id, p.logprob, first_of(p.top, *asked.logprobs), true);
}

Json text_logprobs(const Model::Impl& m, const Asked& asked, const Prompt& prompt, const Generation& g,
                   const Choice& c) {
  TextLogprobs all(m);
  if (asked.echo) add_prompt(asked, prompt, g, all);
  for (size_t i = 0; i < c.logprobs.size(); ++i) all.add(c.ids[i], c.logprobs[i].logprob, c.logprobs[i].top, true);
  return all.take();
}

Json envelope_json(const Envelope& e, const char* object) {
  return {{"id", e.id}, {"object", object}, {"created", e.created}, {"model", e.model}};
}

}  // namespace

struct Usage {
  int64_t prompt = 0, answer = 0, cached = 0;
  void add(const Request& request, const Generation& g) {
    prompt += std::ssize(request.prompt.ids());
    cached += g.cached_tokens;
    for (const Choice& c : choices_of(g)) answer += std::ssize(c.ids);
  }
  Json json() const {
    return {{"prompt_tokens", prompt},
            {"completion_tokens", answer},
            {"total_tokens", prompt + answer},
            {"prompt_tokens_details", {{"cached_tokens", cached}}}};
  }
};

namespace {

Json situ_json(std::span<const Generation> results) {
  Json seed;
  for (const Generation& g : results)
    if (g.seed) seed = *g.seed;
  return {{"seed", seed}};
}

}  // namespace

Json answer_body(const Model& model, const Asked& asked, const Envelope& envelope,
                 std::span<const Generation> results) {
  const Model::Impl& m = impl_of(model);
  const bool chat = asked.route == Route::kChat;
  Json body = envelope_json(envelope, chat ? "chat.completion" : "text_completion");
  Json& choices = body["choices"] = Json::array();
  Usage usage;
  for (size_t i = 0; i < results.size(); ++i) {
    const Generation& g = results[i];
    usage.add(asked.requests[i], g);
    bool first = true;
    for (const Choice& c : choices_of(g)) {
      Json choice = {{"index", choices.size()}};
      if (chat)
        choice["message"] = {{"role", "assistant"}, {"content", c.text}, {"refusal", nullptr}};
      else
        choice["text"] = c.text;
      choice["logprobs"] = !asked.logprobs ? Json()
                           : chat          ? chat_logprobs(m, c)
                                           : text_logprobs(m, asked, asked.requests[i].prompt, g, c);
      choice["finish_reason"] = finish_reason_name(c.reason);
      if (first && asked.prompt_logprobs) choice["prompt_logprobs"] = prompt_logprobs(m, asked, g);
      first = false;
      choices.push_back(std::move(choice));
    }
  }
  body["usage"] = usage.json();
  body["situ"] = situ_json(results);
  asked.ignored.tell(body);
  return body;
}

struct BodyStream::State {
  Usage usage;
  std::vector<TextLogprobs> logprobs;  // of each choice of completions
};

BodyStream::BodyStream(const Model& model, const Asked& asked, Envelope envelope)
    : model_(model), asked_(asked), envelope_(std::move(envelope)), state_(std::make_unique<State>()) {
  if (asked.route == Route::kChat || !asked.logprobs) return;
  for (int64_t i = 0; i < std::ssize(asked.requests) * asked.choices; ++i)
    state_->logprobs.emplace_back(impl_of(model));
}
BodyStream::~BodyStream() = default;

// What the prompt's tokens are like is known at the end only, and stands in front.
bool BodyStream::at_once() const { return asked_.echo && asked_.logprobs; }

Json BodyStream::chunk(size_t choice, const std::string& text, Json logprobs, Json finish_reason) const {
  const bool chat = asked_.route == Route::kChat;
  Json json = envelope_json(envelope_, chat ? "chat.completion.chunk" : "text_completion");
  Json one = {{"index", choice}};
  if (!chat)
    one["text"] = text;
  else if (!text.empty() || finish_reason.is_null())
    one["delta"] = {{"content", text}};
  else
    one["delta"] = Json::object();
  one["logprobs"] = std::move(logprobs);
  one["finish_reason"] = std::move(finish_reason);
  json["choices"] = Json::array({std::move(one)});
  if (asked_.include_usage) json["usage"] = nullptr;
  return json;
}

size_t BodyStream::number(size_t request, size_t choice) const {
  return request * static_cast<size_t>(asked_.choices) + choice;
}

std::vector<Json> BodyStream::begin(size_t request) {
  std::vector<Json> chunks;
  for (size_t k = 0; asked_.route == Route::kChat && k < static_cast<size_t>(asked_.choices); ++k) {
    Json first = chunk(number(request, k), "", nullptr, nullptr);
    first["choices"][0]["delta"] = {{"role", "assistant"}, {"content", ""}};
    chunks.push_back(std::move(first));
  }
  return chunks;
}

std::optional<Json> BodyStream::token(size_t request, const Event& token) {
  const size_t choice = number(request, token.choice);
  Json logprobs;
  if (at_once()) return std::nullopt;
  if (token.logprob && asked_.route == Route::kChat) {
    logprobs = {{"content", Json::array({chat_logprob(impl_of(model_), token.id, *token.logprob, token.top)})},
                {"refusal", nullptr}};
  } else if (token.logprob) {
    state_->logprobs[choice].add(token.id, *token.logprob, token.top, true);
    logprobs = state_->logprobs[choice].take();
  } else if (token.text.empty()) {
    return std::nullopt;
  }
  return chunk(choice, token.text, std::move(logprobs), nullptr);
}

std::vector<Json> BodyStream::end(size_t request, const Generation& g) {
  const Request& asked = asked_.requests[request];
  state_->usage.add(asked, g);
  std::vector<Json> chunks;
  const std::vector<Choice> choices = choices_of(g);
  for (size_t k = 0; k < choices.size(); ++k) {
    const Choice& c = choices[k];
    if (at_once())
      chunks.push_back(
          chunk(number(request, k), c.text, text_logprobs(impl_of(model_), asked_, asked.prompt, g, c), nullptr));
    else if (k > 0 && asked.options.beams.value_or(1) > 1)  // of which the best one is shown as it comes
      chunks.push_back(chunk(number(request, k), c.text, nullptr, nullptr));
    Json none;  // of no tokens, which nothing told
    if (asked_.logprobs && c.ids.empty() && !at_once())
      none = asked_.route == Route::kChat ? chat_logprobs(impl_of(model_), c)
                                          : text_logprobs(impl_of(model_), asked_, asked.prompt, g, c);
    chunks.push_back(chunk(number(request, k), "", std::move(none), finish_reason_name(c.reason)));
    Json& last = chunks.back();
    if (k == 0 && asked_.prompt_logprobs)
      last["choices"][0]["prompt_logprobs"] = prompt_logprobs(impl_of(model_), asked_, g);
    last["situ"] = situ_json({&g, 1});
  }
  return chunks;
}

Json BodyStream::usage() const {
  Json json = envelope_json(envelope_, asked_.route == Route::kChat ? "chat.completion.chunk" : "text_completion");
  json["choices"] = Json::array();
  json["usage"] = state_->usage.json();
  return json;
}

}  // namespace situ::serve
