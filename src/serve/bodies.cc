#include "serve/bodies.h"

#include <algorithm>

#include "base/context_words.h"
#include "base/one_line.h"
#include "base/random_number.h"
#include "pipelines/llm.h"
#include "pipelines/sampling.h"
#include "serve/body_reader.h"

namespace situ::serve {
namespace {

constexpr const char* kUrls[] = {"/v1/chat/completions", "/v1/completions"};
constexpr int64_t kDefaultOfCompletions = 16;

void ignore_unknown(BodyReader& r) {
  for (const auto& [key, value] : r.body.items())
    if (!value.is_null() && !body_field(r.route, key)) r.ignore(key);
}

// Options of GenerateOptions that a field of another name says; those of read_max_tokens and its like say it
// themselves.
constexpr std::pair<const char*, const char*> kOtherNames[] = {
    {"stop_token_ids", "stop_ids"}, {"min_tokens", "min_new_tokens"}, {"num_beams", "beams"}};

void read_field(BodyReader& r, const BodyField& f, const Json& value) {
  using Use = BodyField::Use;
  if (f.use == Use::kOption) {
    const auto other = std::find_if(std::begin(kOtherNames), std::end(kOtherNames),
                                    [&](const auto& n) { return f.name == std::string_view(n.first); });
    r.says(other == std::end(kOtherNames) ? f.name : other->second, f.name);
  }
  if (f.use == Use::kRefused && !is_neutral(f, value))
    r.refuse(f.name, std::string(f.name) + " is not supported: " + f.what, Refusal::Kind::kUnsupported);
  if (f.use == Use::kTemplate && !r.template_reads(f.name)) r.asked.ignored.add(f.name);
  if (f.read) f.read(r, f.name, value);
}

void read_fields(BodyReader& r) {
  for (const BodyField& f : body_fields()) {
    const Json* value = (f.routes & static_cast<int>(r.route)) != 0 ? r.find(f.name) : nullptr;
    if (value && !r.refusal) read_field(r, f, *value);
  }
}

// What several fields say together.
void settle_options(BodyReader& r) {
  GenerateOptions& o = r.options;
  const int64_t beams = o.beams.value_or(1);
  o.sample_as_files = true;
  o.end_of_turn = r.route == Route::kChat;
  if (!o.max_new_tokens) o.max_new_tokens = r.route == Route::kChat ? kMostTokens : kDefaultOfCompletions;
  if (r.asked.choices * beams > kMostBeams)
    return r.refuse("n", "n " + std::to_string(r.asked.choices) + " times num_beams " + std::to_string(beams) +
                             " is more than " + std::to_string(kMostBeams));
  if (beams > 1 && r.asked.choices > beams)
    return r.refuse("n", "n " + std::to_string(r.asked.choices) + " is more than num_beams " + std::to_string(beams));
  (beams > 1 ? o.num_return : o.choices) = r.asked.choices;
  o.logprobs = r.asked.logprobs;
  o.prompt_logprobs = r.asked.prompt_logprobs;
  o.echo = r.asked.echo;
  if (r.asked.echo && r.asked.logprobs) o.prompt_logprobs = std::max(o.prompt_logprobs.value_or(0), *r.asked.logprobs);
  if (!r.asked.prompt_logprobs && r.asked.echo) r.says("prompt_logprobs", "echo");
  if (o.max_new_tokens != 0) return;
  if (!r.asked.echo && !r.asked.prompt_logprobs)
    return r.refuse("max_tokens", "max_tokens 0 is for echo or prompt_logprobs: there is no answer otherwise");
  if (!o.prompt_logprobs) o.prompt_logprobs = 0;
}

// One prompt for each text or list of ids.
std::vector<Prompt> read_prompts(BodyReader& r, const char* name, const Json& value) {
  std::vector<Prompt> prompts;
  const auto add_text = [&](const Json& text) {
    if (!r.model.tokenizer().is_there())
      return r.refuse(name, "the model has no tokenizer, so that prompts are lists of token ids",
                      Refusal::Kind::kByModel);
    const Result<std::vector<int64_t>> ids = r.model.tokenizer().encode(text.get<std::string>(), r.add_special);
    if (!ids.is_ok()) return r.refuse(name, one_line(ids.status().message()));
    prompts.emplace_back(*ids);
  };
  const auto add_ids = [&](const Json& list) {
    if (std::optional<std::vector<int64_t>> ids = r.ids(name, list)) prompts.emplace_back(std::move(*ids));
  };
  const char* const wanted = "a string, a list of token ids, or a list of either";
  if (value.is_string()) {
    add_text(value);
  } else if (!value.is_array() || value.empty()) {
    r.refuse_type(name, value, wanted);
  } else if (value[0].is_number()) {
    add_ids(value);
  } else {
    for (const Json& item : value) {
      if (r.refusal) break;
      if (item.is_string())
        add_text(item);
      else if (item.is_array())
        add_ids(item);
      else
        r.refuse_type(name, item, wanted);
    }
  }
  for (const Prompt& p : prompts)
    if (p.ids().empty()) r.refuse(name, std::string(name) + ": a prompt has no tokens");
  return prompts;
}

void read_prompt(BodyReader& r) {
  const char* const usual = r.route == Route::kChat ? "messages" : "prompt";
  const Json *given = r.find(usual), *ids = r.find("prompt_token_ids");
  r.asked.prompt_field = ids ? "prompt_token_ids" : usual;
  std::vector<Prompt> prompts;
  if (given && ids)
    r.refuse("prompt_token_ids", "prompt_token_ids stands in place of " + std::string(usual) + ": both are given");
  else if (!given && !ids)
    r.refuse(usual, std::string(usual) + " is missing", Refusal::Kind::kMissing);
  else if (ids && (!ids->is_array() || ids->empty()))
    r.refuse_type("prompt_token_ids", *ids, "a list of token ids");
  else if (ids && r.ids("prompt_token_ids", *ids))
    prompts.emplace_back(*r.ids("prompt_token_ids", *ids));
  else if (!ids && r.route == Route::kChat)
    prompts.push_back(prompt_of_messages(r, *given));
  else if (!ids)
    prompts = read_prompts(r, usual, *given);
  const ModelFacts facts = r.model.facts();
  const int64_t slots = facts.state_bytes_per_token > 0 ? facts.slots : 0;
  for (Prompt& p : prompts) {
    const int64_t tokens = std::ssize(p.ids());
    if (slots > 0 && tokens > slots && tokens <= facts.context_length && !r.model.has_encoder())
      r.refuse(r.asked.prompt_field, context_words(slots, tokens) + " (The state has room for no more.)",
               Refusal::Kind::kContext);
    Request request{std::move(p), r.options};
    request.priority = r.priority;
    r.asked.requests.push_back(std::move(request));
  }
}

// So that all prompts are drawn with one seed, which the answer says.
void draw_seeds(BodyReader& r) {
  if (r.options.seed) return;
  r.options.seed = draw_seed();
}

// -- refusals

// A prompt that is longer than the whole state. (Of an encoder-decoder: what its answer begins with.)
bool never_fits(const Asked& asked) {
  const ModelFacts facts = asked.by->facts();
  const auto longer = [&](const Request& r) {
    const auto& ids = asked.by->has_encoder() ? r.prompt.decoder_ids : r.prompt.ids();
    return std::ssize(ids) > facts.slots;
  };
  return facts.state_bytes_per_token > 0 && std::any_of(asked.requests.begin(), asked.requests.end(), longer);
}

}  // namespace

// The model's folder is nobody's business but the server's.
std::string without_paths(const Model& model, std::string message) {
  const Model::Impl& m = impl_of(model);
  const std::string folder = m.folder.modules.string();
  for (const std::string& path : {m.file + ": ", folder + "/", folder + ": ", folder})
    for (size_t at = 0; !path.empty() && (at = message.find(path, at)) != std::string::npos;)
      message.erase(at, path.size());
  return one_line(std::move(message));
}

std::optional<Route> route_of(std::string_view url) {
  if (url == kUrls[0]) return Route::kChat;
  return url == kUrls[1] ? std::optional(Route::kCompletions) : std::nullopt;
}

const char* url_of(Route route) { return kUrls[route == Route::kChat ? 0 : 1]; }

OrRefusal<Asked> read_body(Route route, const Json& body, const Model& model, const BodyRules& rules) {
  BodyReader r(route, body, model, rules);
  r.asked.route = route;
  r.asked.by = &model;
  if (!model.generates())
    r.refuse("model", "the model gives embeddings or scores, no answers", Refusal::Kind::kByModel);
  ignore_unknown(r);
  read_fields(r);
  if (!r.refusal) settle_options(r);
  if (!r.refusal) draw_seeds(r);
  if (!r.refusal) read_prompt(r);
  if (r.refusal) return std::move(*r.refusal);
  return std::move(r.asked);
}

Refusal refusal_of(const Asked& asked, const Status& status) {
  using Kind = Refusal::Kind;
  const std::string message = without_paths(*asked.by, status.message());
  const auto said = asked.fields_of_options.find(status.option());
  const std::string field = said == asked.fields_of_options.end() ? asked.prompt_field : said->second;
  switch (status.code()) {
    case Code::kContextExceeded:
      return {Kind::kContext, asked.prompt_field, message};
    case Code::kInvalidArgument:
      return {Kind::kInvalid, field, message};
    case Code::kNotFound:
    case Code::kUnsupportedModel:
      return {Kind::kByModel, field, message};
    case Code::kNoRoom:
      if (never_fits(asked)) return {Kind::kContext, asked.prompt_field, message};
      return {Kind::kNoRoom, "", message};
    case Code::kBusy:
      return {Kind::kBusy, "", message};
    default:
      return {Kind::kFailed, "", message};
  }
}

std::optional<Refusal> too_many_prompts(const Asked& asked, int64_t most, const std::string& where) {
  const int64_t prompts = std::ssize(asked.requests);
  if (prompts <= most) return std::nullopt;
  return Refusal{
      Refusal::Kind::kLimit, "prompt",
      std::to_string(prompts) + " prompts are more than may run and wait " + where + ": " + std::to_string(most)};
}

std::optional<Refusal> refusal_of(const Asked& asked, const Result<Generation>& result) {
  if (!result.is_ok()) return refusal_of(asked, result.status());
  std::string error = result->error;
  Code code = result->error_code;
  bool failed = result->finish_reason == FinishReason::kError;
  for (const Generation::Answer& a : result->answers)
    if (a.finish_reason == FinishReason::kError && !failed) {
      failed = true;
      error = a.error;
    }
  if (!failed) return std::nullopt;
  if (code == Code::kNoRoom) return refusal_of(asked, Status::error(code, error));
  return Refusal{Refusal::Kind::kFailed, "", without_paths(*asked.by, error)};
}

std::string new_id(Route route) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string id = route == Route::kChat ? "chatcmpl-" : "cmpl-";
  for (int i = 0; i < 2; ++i)
    for (uint64_t bits = random_number(), k = 0; k < 16; ++k, bits >>= 4) id += kDigits[bits & 15];
  return id;
}

}  // namespace situ::serve
