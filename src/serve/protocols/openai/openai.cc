#include "serve/protocols/openai/openai.h"

#include <algorithm>

#include "base/random_id.h"
#include "serve/protocols/openai/errors.h"
#include "serve/tools.h"

namespace situ::serve {
namespace {

constexpr int64_t kDefaultOfCompletions = 16;

// What several fields say together.
void settle_options(BodyReader& r) {
  GenerateOptions& o = r.ask.options;
  const int64_t beams = o.beams.value_or(1);
  check_choice(r);
  o.sample_as_files = true;
  o.end_of_turn = r.route == kChat;
  if (!o.max_new_tokens) o.max_new_tokens = r.route == kChat ? kMostTokens : kDefaultOfCompletions;
  if (r.ask.choices * beams > kMostBeams)
    return r.refuse("n", "n " + std::to_string(r.ask.choices) + " times num_beams " + std::to_string(beams) +
                             " is more than " + std::to_string(kMostBeams));
  if (beams > 1 && r.ask.choices > beams)
    return r.refuse("n", "n " + std::to_string(r.ask.choices) + " is more than num_beams " + std::to_string(beams));
  (beams > 1 ? o.num_return : o.choices) = r.ask.choices;
  o.logprobs = r.ask.logprobs;
  o.prompt_logprobs = r.ask.prompt_logprobs;
  o.echo = r.ask.echo;
  if (r.ask.echo && r.ask.logprobs) o.prompt_logprobs = std::max(o.prompt_logprobs.value_or(0), *r.ask.logprobs);
  if (!r.ask.prompt_logprobs && r.ask.echo) r.says("prompt_logprobs", "echo");
  if (o.max_new_tokens != 0) return;
  if (!r.ask.echo && !r.ask.prompt_logprobs)
    return r.refuse("max_tokens", "max_tokens 0 is for echo or prompt_logprobs: there is no answer otherwise");
  if (!o.prompt_logprobs) o.prompt_logprobs = 0;
}

// One for each text or list of ids.
std::vector<TextPrompt> read_prompts(BodyReader& r, const char* name, const Json& value) {
  std::vector<TextPrompt> prompts;
  const auto add_ids = [&](const Json& list) {
    if (std::optional<std::vector<int64_t>> ids = r.ids(name, list)) prompts.emplace_back(std::move(*ids));
  };
  const char* const wanted = "a string, a list of token ids, or a list of either";
  if (value.is_string()) {
    prompts.emplace_back(value.get<std::string>());
  } else if (!value.is_array() || value.empty()) {
    r.refuse_type(name, value, wanted);
  } else if (value[0].is_number()) {
    add_ids(value);
  } else {
    for (const Json& item : value) {
      if (r.refusal) break;
      if (item.is_string())
        prompts.emplace_back(item.get<std::string>());
      else if (item.is_array())
        add_ids(item);
      else
        r.refuse_type(name, item, wanted);
    }
  }
  return prompts;
}

void read_input(BodyReader& r) {
  const char* const usual = r.route == kChat ? "messages" : "prompt";
  const Json *given = r.find(usual), *ids = r.find("prompt_token_ids");
  r.ask.prompt_field = ids ? "prompt_token_ids" : usual;
  std::vector<TextPrompt> prompts;
  if (given && ids)
    r.refuse("prompt_token_ids", "prompt_token_ids stands in place of " + std::string(usual) + ": both are given");
  else if (!given && !ids)
    r.refuse(usual, std::string(usual) + " is missing", Refusal::Kind::kMissing);
  else if (ids && (!ids->is_array() || ids->empty()))
    r.refuse_type("prompt_token_ids", *ids, "a list of token ids");
  else if (ids)
    prompts.emplace_back(r.ids("prompt_token_ids", *ids).value_or(std::vector<int64_t>()));
  else if (r.route == kText)
    prompts = read_prompts(r, usual, *given);
  else if (std::optional<Prompt> conversation = read_messages(r, *given))
    r.ask.input = std::move(*conversation);
  if (ids || r.route == kText) r.ask.input = std::move(prompts);
}

std::vector<const BodyField*> fields_of(int route) {
  std::vector<const BodyField*> fields;
  for (const std::span<const BodyField> table : {body_fields(), peer_fields()})
    for (const BodyField& f : table)
      if (f.routes & route) fields.push_back(&f);
  return fields;
}

class OpenAi final : public Protocol {
 public:
  explicit OpenAi(int route) : route_(route), fields_(fields_of(route)) {}

  std::span<const BodyField* const> fields() const override { return fields_; }

  // Token ids in place of messages need no chat template.
  bool is_conversation(const Json& body) const override {
    return route_ == kChat && body.value("prompt_token_ids", Json()).is_null();
  }

  OrRefusal<Ask> read(const Json& body, const Model& model, const BodyRules& rules) const override {
    BodyReader r(route_, fields_, body, model, rules);
    if (!model.generates())
      r.refuse("model", "the model gives embeddings or scores, no answers", Refusal::Kind::kByModel);
    r.read_fields();
    if (!r.refusal) settle_options(r);
    if (!r.refusal) read_input(r);
    if (r.refusal) return std::move(*r.refusal);
    return std::move(r.ask);
  }

  std::string new_id() const override { return random_id(route_ == kChat ? "chatcmpl-" : "cmpl-"); }

  std::unique_ptr<Writer> writer(const Model& model, const Ask& ask, Envelope envelope) const override {
    return stream_writer(route_ == kChat, model, ask, std::move(envelope));
  }

  Json whole(const Model& model, const Ask& ask, const Envelope& envelope, const WholeAnswer& answer) const override {
    return whole_answer(route_ == kChat, model, ask, envelope, answer);
  }

  ErrorText error(const Refusal& refusal, const std::string&) const override {
    return {words_of(refusal).status, text_of(refusal)};
  }
  const char* error_schema() const override {
    return R"({"type": "object", "required": ["error"], "properties": {"error": {
      "type": "object", "required": ["message", "type", "param", "code"], "properties": {
        "message": {"type": "string"}, "type": {"type": "string"}, "param": {"type": ["string", "null"]},
        "code": {"type": ["string", "null"]}}}}})";
  }

  const char* last_frame() const override { return "data: [DONE]\n\n"; }

 private:
  const int route_;
  const std::vector<const BodyField*> fields_;
};

}  // namespace

const Protocol& chat_protocol() {
  static const OpenAi protocol(kChat);
  return protocol;
}

const Protocol& completions_protocol() {
  static const OpenAi protocol(kText);
  return protocol;
}

}  // namespace situ::serve
