#include "serve/requests.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "base/context_words.h"
#include "base/one_line.h"
#include "pipelines/llm.h"
#include "pipelines/read_prompt.h"
#include "pipelines/sampling.h"
#include "situ/version.h"
#include "text/dialog/call_grammar.h"

namespace situ::serve {
namespace {

using Kind = Refusal::Kind;

bool has_media(const Prompt& conversation) {
  const auto is_media = [](const Part& p) { return p.kind == Part::Kind::kImage || p.kind == Part::Kind::kAudio; };
  return std::any_of(conversation.messages.begin(), conversation.messages.end(),
                     [&](const Message& m) { return std::any_of(m.parts.begin(), m.parts.end(), is_media); });
}

// Why the model cannot read a conversation.
std::optional<Refusal> unreadable(const Ask& ask, const Prompt& conversation) {
  const Tokenizer& tokenizer = ask.by->tokenizer();
  if (!tokenizer.has_chat_template())
    return Refusal{Kind::kByModel, ask.prompt_field,
                   tokenizer.is_there() ? "the model has no chat template"
                                        : "the model has no tokenizer, so that prompts are prompt_token_ids"};
  if (has_media(conversation) && !ask.by->takes_arrays())
    return Refusal{Kind::kByModel, ask.prompt_field, "the model takes neither images nor sounds"};
  return std::nullopt;
}

// `tokens`: of the prompt; 0: not known, more than there may be.
Refusal too_long(const Ask& ask, int64_t tokens, std::string message) {
  const ModelFacts facts = ask.by->facts();
  int64_t most = facts.context_length;
  if (facts.state_bytes_per_token > 0 && !ask.by->has_encoder()) most = std::min(most, facts.slots);
  return {Kind::kContext, ask.prompt_field, std::move(message), 0, tokens > 0 ? tokens : most + 1, most};
}

Refusal refusal_of_reading(const Ask& ask, const Status& why) {
  const bool by_model = why.code() == Code::kNotFound || why.code() == Code::kUnsupportedModel;
  const std::string message = without_paths(*ask.by, why.message());
  if (why.code() == Code::kNoRoom) return {Kind::kNoRoom, "", message};
  if (why.code() == Code::kContextExceeded) return too_long(ask, 0, message);
  return {by_model ? Kind::kByModel : Kind::kInvalid, ask.prompt_field, message};
}

Dialog dialog_of(const Ask& ask) {
  Dialog dialog{.form = impl_of(*ask.by).texts->form(), .choice = ask.tool_choice};
  if (ask.tool_choice.kind != ToolChoice::Kind::kNone) dialog.tools = ask.tools;
  return dialog;
}

OrRefusal<Prompt> read_conversation(Ask& ask, Prompt conversation) {
  if (std::optional<Refusal> why = unreadable(ask, conversation)) return std::move(*why);
  ask.dialog = dialog_of(ask);
  Result<Prompt> read = read_prompt(impl_of(*ask.by), std::move(conversation), &ask.dialog,
                                    ask.any_length ? PromptLength::kAny : PromptLength::kContext);
  if (!read.is_ok()) return refusal_of_reading(ask, read.status());
  if (const Status set = set_grammar(&ask.dialog, ask.options, *impl_of(*ask.by).text()); !set.is_ok())
    return refusal_of(ask, set);
  if (ask.dialog.reads()) read->dialog = std::make_shared<const Dialog>(ask.dialog);
  return std::move(*read);
}

OrRefusal<Prompt> prompt_of_text(const Ask& ask, const std::string& text) {
  if (!ask.by->tokenizer().is_there())
    return Refusal{Kind::kByModel, ask.prompt_field,
                   "the model has no tokenizer, so that prompts are lists of token ids"};
  Result<std::vector<int64_t>> ids = read_text(impl_of(*ask.by), text, ask.add_special);
  if (!ids.is_ok()) return refusal_of_reading(ask, ids.status());
  return Prompt(std::move(*ids));
}

std::optional<Refusal> wrong_size(const Ask& ask, const Prompt& prompt) {
  const ModelFacts facts = ask.by->facts();
  const int64_t slots = facts.state_bytes_per_token > 0 ? facts.slots : 0, tokens = std::ssize(prompt.ids());
  if (!ask.any_length && slots > 0 && tokens > slots && tokens <= facts.context_length && !ask.by->has_encoder())
    return too_long(ask, tokens, context_words(slots, tokens) + " (The state has room for no more.)");
  return std::nullopt;
}

OrRefusal<std::vector<Prompt>> prompts_of(Ask& ask) {
  std::vector<Prompt> prompts;
  const auto take = [&](OrRefusal<Prompt> read) {
    if (Refusal* why = std::get_if<Refusal>(&read)) return std::optional(std::move(*why));
    prompts.push_back(std::move(std::get<Prompt>(read)));
    return std::optional<Refusal>();
  };
  if (Prompt* conversation = std::get_if<Prompt>(&ask.input)) {
    if (std::optional<Refusal> why = take(read_conversation(ask, std::move(*conversation)))) return std::move(*why);
    return prompts;
  }
  for (TextPrompt& given : std::get<std::vector<TextPrompt>>(ask.input)) {
    auto* const ids = std::get_if<std::vector<int64_t>>(&given);
    if (std::optional<Refusal> why =
            take(ids ? Prompt(std::move(*ids)) : prompt_of_text(ask, std::get<std::string>(given))))
      return std::move(*why);
  }
  for (const Prompt& p : prompts)
    if (p.ids().empty())
      return Refusal{Kind::kInvalid, ask.prompt_field, ask.prompt_field + ": a prompt has no tokens"};
  return prompts;
}

// A prompt that is longer than the whole state. (Of an encoder-decoder: what its answer begins with.)
bool never_fits(const Ask& ask) {
  const ModelFacts facts = ask.by->facts();
  const auto longer = [&](const Ask::Asked& p) {
    return (ask.by->has_encoder() ? p.decoder_tokens : p.tokens) > facts.slots;
  };
  return facts.state_bytes_per_token > 0 && std::any_of(ask.prompts.begin(), ask.prompts.end(), longer);
}

}  // namespace

OrRefusal<std::vector<Request>> requests_of(Ask& ask) {
  if (!ask.tools.empty() && ask.tool_choice.kind != ToolChoice::Kind::kNone && !std::get_if<Prompt>(&ask.input))
    return Refusal{Kind::kInvalid, "tools", "tools and " + ask.prompt_field + ": tools are shown with messages"};
  if (!ask.options.seed) ask.options.seed = draw_seed();
  OrRefusal<std::vector<Prompt>> read = prompts_of(ask);
  if (Refusal* why = std::get_if<Refusal>(&read)) return std::move(*why);
  ask.input = std::vector<TextPrompt>();  // whose parts the prompts have
  std::vector<Request> requests;
  for (Prompt& p : std::get<std::vector<Prompt>>(read)) {
    if (std::optional<Refusal> why = wrong_size(ask, p)) return std::move(*why);
    const std::vector<int64_t>& ids = p.ids();
    ask.prompts.push_back({std::ssize(ids), std::ssize(p.decoder_ids), ids.empty() ? -1 : ids[0]});
    Request& request = requests.emplace_back(Request{std::move(p), ask.options});
    request.priority = ask.priority.value_or(0);
  }
  return requests;
}

OrRefusal<std::string> text_of(Ask& ask) {
  const Prompt& conversation = std::get<Prompt>(ask.input);
  if (std::optional<Refusal> why = unreadable(ask, conversation)) return std::move(*why);
  ask.dialog = dialog_of(ask);
  Result<std::string> text = text_of_conversation(impl_of(*ask.by), conversation, &ask.dialog);
  if (!text.is_ok()) return refusal_of_reading(ask, text.status());
  return std::move(*text);
}

std::string fingerprint_of(const Model& model) {
  std::error_code none;
  const uintmax_t size = std::filesystem::file_size(impl_of(model).folder.model_file, none);
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : std::string(version()) + " " + build_facts().isa + " " + std::to_string(none ? 0 : size)) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3;
  }
  char text[24];
  std::snprintf(text, sizeof(text), "fp_%016llx", static_cast<unsigned long long>(hash));
  return text;
}

// The model's folder is nobody's business but the server's.
std::string without_paths(const Model& model, std::string message) {
  const Model::Impl& m = impl_of(model);
  const std::string folder = m.folder.modules.string();
  for (const std::string& path : {m.file + ": ", folder + "/", folder + ": ", folder})
    for (size_t at = 0; !path.empty() && (at = message.find(path, at)) != std::string::npos;)
      message.erase(at, path.size());
  return one_line(std::move(message));
}

// Which tool's schema has no grammar, and why.
static Refusal refusal_of_tools(const Ask& ask, std::string message) {
  for (size_t i = 0; i < ask.dialog.tools.size() && ask.dialog.form; ++i) {
    const Result<std::string> alone = call_grammar(ask.dialog.form->form, std::span(&ask.dialog.tools[i], 1),
                                                   {ToolChoice::Kind::kRequired}, ask.dialog.in_reasoning);
    const Status why = alone.is_ok() ? Grammar::check(GrammarKind::kAnswer, *alone) : alone.status();
    if (!why.is_ok())
      return {Kind::kInvalid, ask.fields_of_tools[i],
              ask.fields_of_tools[i] + ": " + without_paths(*ask.by, why.message())};
  }
  return {Kind::kInvalid, "tools", std::move(message)};
}

Refusal refusal_of(const Ask& ask, const Status& status) {
  int64_t longest = 0;
  for (const Ask::Asked& prompt : ask.prompts) longest = std::max(longest, prompt.tokens);
  const std::string message = without_paths(*ask.by, status.message());
  const auto said = ask.fields_of_options.find(status.option());
  const std::string field = said == ask.fields_of_options.end() ? ask.prompt_field : said->second;
  switch (status.code()) {
    case Code::kContextExceeded:
      return too_long(ask, longest, message);
    case Code::kInvalidArgument:
      if (status.option() == "tools") return refusal_of_tools(ask, message);
      return {Kind::kInvalid, field, message};
    case Code::kNotFound:
    case Code::kUnsupportedModel:
      return {Kind::kByModel, field, message};
    case Code::kNoRoom:
      if (never_fits(ask)) return too_long(ask, longest, message);
      return {Kind::kNoRoom, "", message};
    case Code::kBusy:
      return {Kind::kBusy, "", message};
    default:
      return {Kind::kFailed, "", message};
  }
}

std::optional<Refusal> too_many_prompts(const Ask& ask, int64_t most, const std::string& where) {
  const int64_t prompts = std::ssize(ask.prompts);
  if (prompts <= most) return std::nullopt;
  return Refusal{
      Refusal::Kind::kLimit, "prompt",
      std::to_string(prompts) + " prompts are more than may run and wait " + where + ": " + std::to_string(most)};
}

std::optional<Refusal> refusal_of(const Ask& ask, const Result<Generation>& result) {
  if (!result.is_ok()) return refusal_of(ask, result.status());
  std::string error = result->error;
  Code code = result->error_code;
  bool failed = result->finish_reason == FinishReason::kError;
  for (const Generation::Answer& a : result->answers)
    if (a.finish_reason == FinishReason::kError && !failed) {
      failed = true;
      error = a.error;
    }
  if (!failed) return std::nullopt;
  if (code == Code::kNoRoom) return refusal_of(ask, Status::error(code, error));
  return Refusal{Refusal::Kind::kFailed, "", without_paths(*ask.by, error)};
}

}  // namespace situ::serve
