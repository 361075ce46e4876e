// Whole answers, and their pieces as they come, as OpenAI's bodies have them.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/random_id.h"
#include "pipelines/llm.h"
#include "serve/protocols/openai/errors.h"
#include "serve/protocols/openai/openai.h"
#include "text/decode_stream.h"
#include "text/json_file.h"

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

Json chat_logprobs(const Model::Impl& m, const std::vector<Told>& tokens) {
  Json content = Json::array();
  for (const Told& token : tokens) {
    Json one = entry(m, token.id, token.logprob.value_or(0));
    one["top_logprobs"] = Json::array();
    for (const TokenLogprob& t : token.top) one["top_logprobs"].push_back(entry(m, t.id, t.logprob));
    content.push_back(std::move(one));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

// logprobs of completions, token by token.
class TextLogprobs {
 public:
  explicit TextLogprobs(const Model::Impl& m) : m_(m) {
    if (m.tokenizer) stream_.emplace(*m.tokenizer);
  }
  void add(const Told& token) {
    const auto& [id, logprob, top] = token;
    const std::string text = name_of(id);
    json_["tokens"].push_back(text);
    json_["token_logprobs"].push_back(logprob ? number(*logprob) : Json());
    Json others;
    if (logprob) {
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

Json prompt_logprobs(const Model::Impl& m, const Ask& ask, const Ended& end) {
  const auto count = static_cast<size_t>(*ask.prompt_logprobs);
  Json list = Json::array({nullptr});
  for (const Generation::PromptLogprob& p : end.prompt_logprobs) {
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

Json text_logprobs(const Model::Impl& m, const std::vector<Told>& tokens) {
  TextLogprobs all(m);
  for (const Told& token : tokens) all.add(token);
  return all.take();
}

Json envelope_json(const Envelope& e, const char* object) {
  Json json = {{"id", e.id}, {"object", object}, {"created", e.created}, {"model", e.model}};
  if (!e.fingerprint.empty()) json["system_fingerprint"] = e.fingerprint;
  return json;
}

Json usage_json(const Usage& u) {
  Json usage = {{"prompt_tokens", u.prompt},
                {"completion_tokens", u.answer},
                {"total_tokens", u.prompt + u.answer},
                {"prompt_tokens_details", {{"cached_tokens", u.cached}}}};
  if (u.reasoning > 0) usage["completion_tokens_details"] = {{"reasoning_tokens", u.reasoning}};
  return usage;
}

Json seed_json(const std::optional<uint64_t>& seed) { return seed ? Json(*seed) : Json(); }

Json timings_json(const Timings& t) {
  Json timings = {{"cache_n", t.cached},
                  {"prompt_n", t.prompt},
                  {"prompt_ms", t.prompt_ms},
                  {"prompt_per_second", t.prompt_per_second},
                  {"predicted_n", t.predicted},
                  {"predicted_ms", t.predicted_ms},
                  {"predicted_per_second", t.predicted_per_second},
                  {"queue_ms", t.queue_ms},
                  {"bytes_copied", t.bytes_copied}};
  if (t.guessed > 0) {
    timings["draft_n"] = t.guessed;
    timings["draft_n_accepted"] = t.accepted;
  }
  return timings;
}

// An answer whose last call has ended asks for calls; one that was cut says so, whatever it has.
const char* finish_reason(FinishReason reason, bool calls) {
  const bool stopped = reason == FinishReason::kStop || reason == FinishReason::kStopString;
  return calls && stopped ? "tool_calls" : finish_reason_name(reason);
}

Json call_json(const std::string& name, const std::string& arguments) {
  return {{"id", random_id("call_")}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}};
}

Json message_json(const WholeAnswer::Choice& c, const Ask& ask) {
  Json calls = Json::array();
  for (const WholeAnswer::Call& call : c.calls)
    if (call.ended) calls.push_back(call_json(call.name, call.arguments_json));
  const bool silent = c.text.empty() && (!c.calls.empty() || !c.reasoning.empty() || !ask.dialog.tools.empty());
  Json message = {{"role", "assistant"}, {"content", silent ? Json() : Json(c.text)}, {"refusal", nullptr}};
  if (!c.reasoning.empty()) message["reasoning_content"] = c.reasoning;
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
  return message;
}

class StreamWriter final : public Writer {
 public:
  StreamWriter(bool chat, const Model& model, const Ask& ask, Envelope envelope)
      : chat_(chat), m_(impl_of(model)), ask_(ask), envelope_(std::move(envelope)) {}

  void put(const Out& out, std::vector<Piece>& pieces) override {
    if (!std::holds_alternative<Finished>(out.what)) let_go(pieces);
    if (out.choice >= choices_.size()) choices_.resize(out.choice + 1);
    std::visit([&](const auto& what) { write(out, what, pieces); }, out.what);
  }

 private:
  struct Choice {
    std::optional<TextLogprobs> logprobs;
    bool told = false;   // logprobs
    bool calls = false;  // one has ended
  };

  Json chunk(size_t choice, Json delta, Json logprobs, Json finish_reason) const {
    Json json = envelope_json(envelope_, chat_ ? "chat.completion.chunk" : "text_completion");
    Json one = {{"index", choice}};
    one[chat_ ? "delta" : "text"] = std::move(delta);
    one["logprobs"] = std::move(logprobs);
    one["finish_reason"] = std::move(finish_reason);
    json["choices"] = Json::array({std::move(one)});
    if (ask_.include_usage) json["usage"] = nullptr;
    return json;
  }
  void send(Json json, std::vector<Piece>& pieces) {
    if (!begun_ && envelope_.request) json["situ"]["request"] = *envelope_.request;
    begun_ = true;
    pieces.push_back({"", json_text(json)});
  }
  // The last piece has what is known behind it.
  void let_go(std::vector<Piece>& pieces) {
    if (held_) send(std::move(*held_), pieces);
    held_.reset();
  }

  Json logprobs_of(const Out& out) {
    Choice& c = choices_[out.choice];
    if (out.tokens.empty()) return nullptr;
    c.told = true;
    if (chat_) return chat_logprobs(m_, out.tokens);
    if (!c.logprobs) c.logprobs.emplace(m_);
    for (const Told& token : out.tokens) c.logprobs->add(token);
    return c.logprobs->take();
  }

  void write(const Out& out, const Begun&, std::vector<Piece>& pieces) {
    // Of an answer that may have no text, as whole ones have it.
    const Json content = ask_.dialog.reads() ? Json() : Json("");
    if (chat_) send(chunk(out.choice, {{"role", "assistant"}, {"content", content}}, nullptr, nullptr), pieces);
  }
  void write(const Out& out, const TextPiece& piece, std::vector<Piece>& pieces) {
    Json delta = piece.text;
    if (chat_) delta = {{"content", piece.text}};
    send(chunk(out.choice, std::move(delta), logprobs_of(out), nullptr), pieces);
  }
  void write(const Out& out, const ReasoningPiece& piece, std::vector<Piece>& pieces) {
    send(chunk(out.choice, {{"reasoning_content", piece.text}}, logprobs_of(out), nullptr), pieces);
  }
  void write(const Out& out, const CallBegun& call, std::vector<Piece>& pieces) {
    Json begun = {{"index", call.index}};
    begun.update(call_json(call.name, ""));
    send(chunk(out.choice, {{"tool_calls", Json::array({std::move(begun)})}}, logprobs_of(out), nullptr), pieces);
  }
  void write(const Out& out, const ArgumentsPiece& piece, std::vector<Piece>& pieces) {
    const Json more = {{"index", piece.index}, {"function", {{"arguments", piece.json}}}};
    send(chunk(out.choice, {{"tool_calls", Json::array({more})}}, logprobs_of(out), nullptr), pieces);
  }
  void write(const Out& out, const CallEnded&, std::vector<Piece>&) { choices_[out.choice].calls = true; }
  void write(const Out& out, const Ended& end, std::vector<Piece>&) {
    const Choice& c = choices_[out.choice];
    Json none;  // of no tokens, which nothing told
    if (ask_.logprobs && end.tokens == 0 && !c.told) none = chat_ ? chat_logprobs(m_, {}) : text_logprobs(m_, {});
    held_ = chunk(out.choice, chat_ ? Json::object() : Json(""), std::move(none), finish_reason(end.reason, c.calls));
    if (ask_.prompt_logprobs && out.choice % static_cast<size_t>(ask_.choices) == 0)
      (*held_)["choices"][0]["prompt_logprobs"] = prompt_logprobs(m_, ask_, end);
    (*held_)["situ"] = {{"seed", seed_json(end.seed)}};
  }
  void write(const Out&, const Finished& finished, std::vector<Piece>& pieces) {
    if (ask_.include_usage) {
      let_go(pieces);
      held_ = envelope_json(envelope_, chat_ ? "chat.completion.chunk" : "text_completion");
      (*held_)["choices"] = Json::array();
      (*held_)["usage"] = usage_json(finished.usage);
    }
    if (!held_) return;
    ask_.ignored.tell(*held_);
    if (finished.timings) (*held_)["timings"] = timings_json(*finished.timings);
    let_go(pieces);
  }
  void write(const Out&, const Refusal& refusal, std::vector<Piece>& pieces) {
    pieces.push_back({"", text_of(refusal)});
  }

  const bool chat_;
  const Model::Impl& m_;
  const Ask& ask_;
  const Envelope envelope_;
  std::vector<Choice> choices_;
  std::optional<Json> held_;
  bool begun_ = false;  // the first piece is sent
};

}  // namespace

std::unique_ptr<Writer> stream_writer(bool chat, const Model& model, const Ask& ask, Envelope envelope) {
  return std::make_unique<StreamWriter>(chat, model, ask, std::move(envelope));
}

Json whole_answer(bool chat, const Model& model, const Ask& ask, const Envelope& envelope, const WholeAnswer& answer) {
  const Model::Impl& m = impl_of(model);
  Json body = envelope_json(envelope, chat ? "chat.completion" : "text_completion");
  Json& choices = body["choices"] = Json::array();
  Json seed;
  for (const WholeAnswer::Choice& c : answer.choices) {
    Json choice = {{"index", choices.size()}};
    choice[chat ? "message" : "text"] = chat ? message_json(c, ask) : Json(c.text);
    choice["logprobs"] = !ask.logprobs ? Json() : chat ? chat_logprobs(m, c.tokens) : text_logprobs(m, c.tokens);
    const bool calls = std::any_of(c.calls.begin(), c.calls.end(), [](const auto& call) { return call.ended; });
    choice["finish_reason"] = finish_reason(c.end.reason, calls);
    if (ask.prompt_logprobs && choices.size() % static_cast<size_t>(ask.choices) == 0)
      choice["prompt_logprobs"] = prompt_logprobs(m, ask, c.end);
    if (c.end.seed) seed = *c.end.seed;
    choices.push_back(std::move(choice));
  }
  body["usage"] = usage_json(answer.finished.usage);
  body["situ"] = {{"seed", seed}};
  if (envelope.request) body["situ"]["request"] = *envelope.request;
  ask.ignored.tell(body);
  if (answer.finished.timings) body["timings"] = timings_json(*answer.finished.timings);
  return body;
}

}  // namespace situ::serve
