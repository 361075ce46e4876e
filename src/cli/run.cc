#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/interrupts.h"
#include "cli/models.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/prompt_input.h"
#include "cli/terminal.h"
#include "pipelines/encoder_inputs.h"
#include "pipelines/media_tags.h"
#include "situ/tools.h"

namespace situ::cli {
namespace {

Result<std::vector<int64_t>> parse_ids(const std::string& option, const std::string& text) {
  std::vector<int64_t> ids;
  const char* p = text.data();
  const char* end = p + text.size();
  while (p < end) {
    while (p < end && *p == ' ') ++p;
    int64_t id = 0;
    const auto [next, error] = std::from_chars(p, end, id);
    if (error != std::errc()) return Status::error(option + ": '" + std::string(p, end) + "' is not a token id");
    ids.push_back(id);
    p = next;
    while (p < end && *p == ' ') ++p;
    if (p == end) break;
    if (*p++ != ',' || p == end) return Status::error(option + ": ids are separated by commas");
  }
  if (ids.empty()) return Status::error(option + " is empty");
  return ids;
}

// The prompt by its languages, which also say how the answer begins.
Result<Prompt> translation_of(const Model& model, RunArguments& a) {
  if (a.source_language && !a.prompt)
    return Status::error("--source-lang is the language of a --prompt; ids have its token already");
  if (a.chat || a.system) return Status::error("--source-lang and --target-lang do not go with a conversation");
  if (a.target_language && a.generate.forced_bos_id)
    return Status::error("--target-lang and --forced-bos-id both say how the answer begins");
  Result<Tokenizer::Translation> t = model.tokenizer().encode_translation(
      a.prompt.value_or(""), a.source_language.value_or(""), a.target_language.value_or(""));
  if (!t.is_ok()) return t.status();
  if (t->forced_bos_id) a.generate.forced_bos_id = t->forced_bos_id;
  if (!a.prompt_ids) return Prompt(a.prompt ? std::move(t->ids) : std::vector<int64_t>{});
  Result<std::vector<int64_t>> ids = parse_ids("--prompt-ids", *a.prompt_ids);
  if (!ids.is_ok()) return ids.status();
  return Prompt(std::move(*ids));
}

// Settings of --processor.
Status add_image_settings(const RunArguments& a, Prompt& prompt) {
  prompt.max_pixels = a.max_pixels;
  for (const std::string& setting : a.processor) {
    const size_t equals = setting.find('=');
    if (equals == std::string::npos || equals == 0)
      return Status::error("--processor '" + setting + "' is not KEY=VALUE");
    if (!prompt.image_settings.emplace(setting.substr(0, equals), setting.substr(equals + 1)).second)
      return Status::error("--processor " + setting.substr(0, equals) + " is given twice");
  }
  return Status::ok();
}

// The prompt with the images and sounds of files.
Result<Prompt> prompt_of(const Model& model, RunArguments& a) {
  Prompt prompt;
  std::vector<Part> parts;
  for (const std::string& file : a.images) parts.push_back(Part::of_file(Part::Kind::kImage, file));
  for (const std::string& file : a.sounds) parts.push_back(Part::of_file(Part::Kind::kAudio, file));
  if (a.source_language || a.target_language) {
    Result<Prompt> translation = translation_of(model, a);
    if (!translation.is_ok()) return translation;
    prompt = std::move(*translation);
    prompt.parts.insert(prompt.parts.end(), parts.begin(), parts.end());
  } else if (a.prompt_ids) {
    Result<std::vector<int64_t>> ids = parse_ids("--prompt-ids", *a.prompt_ids);
    if (!ids.is_ok()) return ids.status();
    parts.push_back(Part::of_ids(std::move(*ids)));
    prompt.parts = std::move(parts);
  } else if (!a.prompt) {
    if (!a.images.empty() && !model.has_encoder())
      return Status::error("give --prompt TEXT or --prompt-ids 1,2,3 with the --image");
    prompt.parts = std::move(parts);  // arrays are the prompt
  } else {
    const bool arrays = !a.encoder_inputs.empty();  // of images and sounds, with as many tags as they have rows
    SITU_RETURN_IF_ERROR(check_media_tags(model, a.system.value_or("") + "\n" + *a.prompt,
                                          {arrays || !a.images.empty(), arrays || !a.sounds.empty()}, "--"));
    parts.push_back(Part::of_text(*a.prompt));
    if (a.system) prompt.messages.push_back(Message::of_text("system", *a.system));
    if (a.system || a.chat)
      prompt.messages.push_back({"user", std::move(parts)});
    else
      prompt.parts = std::move(parts);
  }
  if (a.tools && prompt.messages.empty())
    return Status::error("--tools wants a model with a chat template; " + a.model + " has none");
  prompt.chat.tools_json = a.tools.value_or("");
  SITU_RETURN_IF_ERROR(add_image_settings(a, prompt));
  return model.read(std::move(prompt));
}

// What only a model with an encoder takes. Errors name the argument, the text or the file.
struct EncoderArguments {
  std::vector<int64_t> decoder_prompt;  // empty: the start token
  std::vector<GivenTensor> tensors;
};
Result<EncoderArguments> encoder_arguments(const RunArguments& a) {
  EncoderArguments found;
  if (!a.decoder_prompt_ids.empty()) {
    Result<std::vector<int64_t>> ids = parse_ids("--decoder-prompt-ids", a.decoder_prompt_ids);
    if (!ids.is_ok()) return ids.status();
    found.decoder_prompt = std::move(*ids);
  }
  Result<std::vector<GivenTensor>> tensors = read_encoder_inputs(a.encoder_inputs);
  if (!tensors.is_ok()) return tensors.status();
  found.tensors = std::move(*tensors);
  return found;
}

// Refuses what a model without an encoder has no use for.
Status refuse_encoder_arguments(const RunArguments& a) {
  const char* given = !a.decoder_prompt_ids.empty() ? "--decoder-prompt-ids"
                      : !a.encoder_inputs.empty()   ? "--encoder-input"
                      : a.source_language           ? "--source-lang"
                      : a.target_language           ? "--target-lang"
                                                    : nullptr;
  return given ? Status::error(std::string(given) + " is for models with an encoder; " + a.model + " has none")
               : Status::ok();
}

// One object for each token: its id and log-probability, and under "top" the most probable ones.
nlohmann::ordered_json logprobs_json(const Generation& g) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (size_t i = 0; i < g.logprobs.size(); ++i) {
    nlohmann::ordered_json top = nlohmann::ordered_json::array();
    for (const TokenLogprob& t : g.logprobs[i].top) top.push_back({{"id", t.id}, {"logprob", t.logprob}});
    list.push_back({{"id", g.output_ids[i]}, {"logprob", g.logprobs[i].logprob}, {"top", top}});
  }
  return list;
}

// What an answer says beside its text: reasoning, and calls as messages of a history have them. `tools`: there may be
// calls, be it none.
template <typename SomeAnswer>
void add_said(const SomeAnswer& answer, bool tools, nlohmann::ordered_json& to) {
  if (!answer.reasoning.empty()) to["reasoning"] = answer.reasoning;
  if (tools) to["tool_calls"] = nlohmann::ordered_json::array();
  for (const ToolCall& c : answer.tool_calls)
    to["tool_calls"].push_back(
        {{"id", c.id}, {"type", "function"}, {"function", {{"name", c.name}, {"arguments", c.arguments_json}}}});
}

nlohmann::ordered_json answers_json(const Generation& g, bool tools) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Generation::Answer& a : g.answers) {
    list.push_back({{"output_ids", a.output_ids}, {"text", a.text}});
    add_said(a, tools, list.back());
    list.back()["finish_reason"] = finish_reason_name(a.finish_reason);
    list.back()["score"] = a.score;
  }
  return list;
}

// Enough for 2,000 calls a step and a few thousand steps; what comes after is counted in the file.
constexpr size_t kMaxTraceEvents = size_t{1} << 22;

nlohmann::ordered_json to_json(const RunArguments& a, const Prompt& prompt, const Generation& g,
                               const ModelFacts& facts) {
  const GenerateOptions& options = a.generate;
  nlohmann::ordered_json j;
  j["prompt_ids"] = prompt.ids();
  if (!g.decoder_prompt_ids.empty()) j["decoder_prompt_ids"] = g.decoder_prompt_ids;
  j["output_ids"] = g.output_ids;
  j["text"] = g.text;
  add_said(g, a.tools.has_value(), j);
  j["finish_reason"] = finish_reason_name(g.finish_reason);
  if (g.finish_reason == FinishReason::kError) j["error"] = one_line(g.error);
  if (g.seed) j["seed"] = *g.seed;
  if (!g.answers.empty()) j["answers"] = answers_json(g, a.tools.has_value());
  if (options.logprobs) j["logprobs"] = logprobs_json(g);
  if (options.prompt_lookup > 0 || options.draft_tokens > 0)
    j["speculation"] = {{"guessed", g.guessed_tokens}, {"accepted", g.accepted_tokens}};
  if (options.report_perplexity) j["perplexity"] = g.perplexity ? nlohmann::ordered_json(*g.perplexity) : nullptr;
  j["cached_tokens"] = g.cached_tokens;
  j["load_ms"] = facts.load_ms;
  if (!g.decoder_prompt_ids.empty() || g.encode_ms > 0) j["encode_ms"] = g.encode_ms;
  j["prefill_ms"] = g.prefill_ms;
  j["time_to_first_token_ms"] = g.encode_ms + g.prefill_ms;
  for (const MediaFacts& m : prompt.media)
    if (m.kind == Part::Kind::kImage)
      j["images"].push_back({{"width", m.width}, {"height", m.height}, {"tokens", m.tokens}});
    else
      j["sounds"].push_back({{"duration_s", m.duration_s}, {"tokens", m.tokens}});
  for (const Stage& s : g.stages)
    j["stages"].push_back(
        {{"name", s.name}, {"ms", s.ms}, {"bytes_copied", s.bytes_copied}, {"bytes_written", s.bytes_written}});
  j["decode_ms_per_token"] = g.decode_ms_per_token;
  j["bytes_copied_per_token"] = g.bytes_copied_per_token;
  j["bytes_written_per_token"] = g.bytes_written_per_token;
  j["peak_rss_mib"] = peak_rss_mib();
  j["packed_bytes"] = facts.packed_bytes;
  j["mapped_packed_bytes"] = facts.mapped_packed_bytes;
  j["isa"] = facts.isa;
  j["mode"] = facts.mode;
  return j;
}

std::string json_line(const nlohmann::ordered_json& j) {
  return j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

// Before there is a prompt or an answer: Control-C leaves, with what there is.
void leave_empty_handed(const RunArguments& a) {
  Generation nothing;
  nothing.finish_reason = FinishReason::kCancelled;
  leave_on_interrupt(a.json ? json_line(to_json(a, {}, nothing, {})) : "",
                     "[0 new tokens: interrupted before the prompt was read]\n");
}

void print_other_answers(const Generation& g, bool ids_only, AnswerText& out) {
  for (size_t i = 1; i < g.answers.size(); ++i) {
    std::string text = g.answers[i].text;
    if (ids_only)
      for (const int64_t id : g.answers[i].output_ids) text += (text.empty() ? "" : ",") + std::to_string(id);
    std::printf("--\n");
    out.write(text);
    out.finish();
    if (!text.empty() || g.answers[i].tool_calls.empty()) std::printf("\n");
    print_calls(g.answers[i].tool_calls, out);
  }
}

void print_figures(const RunArguments& a, size_t prompt_tokens, const Generation& g, const ModelFacts& facts) {
  char guesses[64] = "", perplexity[48] = "", seed[40] = "";
  if (g.seed) std::snprintf(seed, sizeof(seed), ", seed %llu", static_cast<unsigned long long>(*g.seed));
  if (a.generate.prompt_lookup > 0 || a.generate.draft_tokens > 0)
    std::snprintf(guesses, sizeof(guesses), ", %lld of %lld guesses held", static_cast<long long>(g.accepted_tokens),
                  static_cast<long long>(g.guessed_tokens));
  if (g.perplexity) std::snprintf(perplexity, sizeof(perplexity), ", perplexity %.4g", *g.perplexity);
  const double rate = g.decode_ms_per_token > 0 ? 1000.0 / g.decode_ms_per_token : 0;
  std::fprintf(stderr,
               "[%zu prompt + %zu new tokens%s, %s, %s: prefill %.0f ms, decode %.1f tokens/s, copied %.0f "
               "B/token%s%s%s]\n",
               prompt_tokens, g.output_ids.size(), g.finish_reason == FinishReason::kCancelled ? ", interrupted" : "",
               facts.mode.c_str(), facts.isa.c_str(), g.prefill_ms, rate, g.bytes_copied_per_token, guesses, perplexity,
               seed);
}

// Known before the model is loaded, and without a file being touched that a failed run would leave empty.
Status check_trace(const std::string& file) {
  if (file.empty()) return Status::ok();
  std::error_code unknown;
  const std::filesystem::path folder = std::filesystem::absolute(file, unknown).parent_path();
  if (std::filesystem::is_directory(file, unknown) || !std::filesystem::is_directory(folder, unknown) ||
      access(folder.c_str(), W_OK) != 0)
    return Status::error(Code::kNoRoom, file + ": cannot be written");
  return Status::ok();
}

Status start_trace(Model& model, const std::string& file, std::optional<Trace>& trace) {
  if (file.empty()) return Status::ok();
  std::error_code unknown;
  const ModelFacts facts = model.facts();
  for (const std::string& mapped : facts.mapped_files)
    if (std::filesystem::equivalent(mapped, file, unknown))
      return Status::error(file + ": is the model; a trace would take its place");
  trace.emplace(std::max(1, facts.threads), kMaxTraceEvents);
  return model.record(&*trace).with_context("--trace");
}

// The files of images and sounds can be read; what is in them the model's processor says.
Status check_files(const RunArguments& a) {
  for (const auto* files : {&a.images, &a.sounds})
    for (const std::string& file : *files) {
      std::error_code unknown;
      if (std::filesystem::is_directory(file, unknown)) return Status::error(file + ": is a folder");
      if (access(file.c_str(), R_OK) != 0)
        return Status::error(file + ": cannot be read: " + std::generic_category().message(errno));
    }
  return Status::ok();
}

// The list of tools in a file. Errors name the file and the field.
Status read_tools(RunArguments& a) {
  if (!a.tools) return Status::ok();
  if (a.raw || a.prompt_ids || (a.prompt && !a.chat && !a.system))
    return Status::error(
        "--tools are those of a conversation, which --raw, --prompt-ids and --prompt without --chat are not");
  Result<std::string> text = read_file(*a.tools);
  if (!text.is_ok()) return text.status();
  const Status checked = text->empty() ? Status::error("should be a JSON list of tools") : check_tools(*text);
  if (!checked.is_ok()) return checked.with_context(*a.tools);
  a.tools = std::move(*text);
  return Status::ok();
}

Status no_prompt(const RunArguments& a) {
  return Status::error(
      "no prompt: give a PROMPT, -f FILE, --prompt TEXT or --prompt-ids 1,2,3, or text on standard "
      "input; for a conversation: situ chat " +
      a.model);
}

// Which of the prompts is given, and the message's text.
Status take_prompt(RunArguments& a) {
  const bool message = a.words || a.file;
  if (message && (a.prompt || a.prompt_ids))
    return Status::error(std::string(a.words ? "PROMPT" : "-f FILE") + " and " +
                         (a.prompt ? "--prompt" : "--prompt-ids") + " are two prompts: give one");
  if (a.prompt_ids && (a.chat || a.system))
    return Status::error("--chat and --system make a prompt out of text; --prompt-ids is one already");
  if (a.raw && (a.chat || a.system)) return Status::error("--raw leaves a prompt as it is; --chat and --system do not");
  if (a.prompt_ids) return parse_ids("--prompt-ids", *a.prompt_ids).status();
  if (a.prompt && a.prompt->empty()) return Status::error("--prompt is empty");
  if (a.prompt || (!message && !a.encoder_inputs.empty())) return Status::ok();
  Result<std::optional<std::string>> read = read_message({a.words, a.file, a.raw});
  if (!read.is_ok()) return read.status();
  if (*read && (*read)->empty()) return Status::error("the prompt is empty");
  if (!*read && a.images.empty()) return no_prompt(a);
  a.words = std::move(*read);
  return Status::ok();
}

// All that needs no model, since loading one takes seconds.
Status check_arguments(RunArguments& a) {
  SITU_RETURN_IF_ERROR(resolve_arguments(a));
  if (a.images.empty() && !a.processor.empty()) return Status::error("--processor is for an --image; there is none");
  if (a.generate.logprobs && !a.json) return Status::error("--logprobs is reported with --json");
  SITU_RETURN_IF_ERROR(check_files(a));
  SITU_RETURN_IF_ERROR(check_trace(a.trace));
  SITU_RETURN_IF_ERROR(read_tools(a));
  return take_prompt(a);
}

// The message becomes that of a user where the model has a chat template, and is drawn as in a conversation; else it is
// the prompt.
void settle_prompt(const Model& model, RunArguments& a) {
  a.generate.sample_as_files = false;  // greedy where nothing is said
  if (a.words) {
    a.prompt = std::move(a.words);
    const bool told = model.tokenizer().has_chat_template() && !a.raw && !a.source_language && !a.target_language;
    if (told) {
      a.chat = true;
      draw_as_chat(model, &a.generate);
    }
  }
  a.generate.end_of_turn = a.chat || a.system;
}

// Why an answer has nothing in it.
std::string why_empty(const RunArguments& a, const Generation& g) {
  if (!g.reasoning.empty()) return "the answer is empty: the model thought up to its end; --tokens gives it more";
  if (g.finish_reason == FinishReason::kStopString || !g.output_ids.empty())
    return "the answer is empty: its tokens have no text in front of a stop text, or none at all";
  const bool plain = a.prompt && !a.chat && !a.system;
  return std::string("the answer is empty: the model ended it at once") +
         (plain ? "; situ run MODEL \"PROMPT\" without --prompt and --raw asks it as a user does" : "");
}

}  // namespace

void add_run_options(CLI::App& command, RunArguments& a) {
  add_model(command, a);
  const std::string prompt = "Prompt", encoder = more("Models with an encoder"), images = more("Images and sounds"),
                    output = "Output", diagnostics = more("Diagnostics");
  command.add_option("prompt", a.words, "What to answer; standard input goes on with it");
  const auto several = [&](const char* name, std::vector<std::string>& to, const char* type, const char* what,
                           const std::string& group) {
    repeated(command.add_option(name, to, what), type)->group(group);
  };
  command.add_option("-f,--file", a.file, "Read the prompt, or its end, from a file; - is standard input")
      ->type_name("FILE")
      ->group(prompt);
  command.add_option("--system", a.system, "System message")->type_name("TEXT")->group(prompt);
  command.add_flag("--raw", a.raw, "Use the prompt as it is, without the chat template")->group(prompt);
  command.add_option("--tools", a.tools, "Functions that the answer may call: a JSON list as in OpenAI's chat")
      ->type_name("FILE")
      ->group(prompt);
  several("--image", a.images, "FILE", "Image of the prompt: png, jpeg, webp, gif (repeatable)", prompt);
  several("--audio", a.sounds, "FILE", "Sound of the prompt: wav, flac, mp3, ogg (repeatable)", prompt);
  CLI::Option* text = command.add_option("--prompt", a.prompt, "Prompt as it is; greedy unless sampling is asked for")
                          ->type_name("TEXT")
                          ->group(more(prompt));
  command.add_option("--prompt-ids", a.prompt_ids, "Prompt as token ids: 1,2,3")
      ->type_name("IDS")
      ->group(more(prompt))
      ->excludes(text);
  command.add_flag("--chat", a.chat, "Apply the chat template to --prompt")->group(more(prompt));
  add_generate_options(command, a);
  command.add_flag("--json", a.json, "Print one JSON object instead of the text")->group(output);
  command.add_flag("--echo", a.generate.echo, "Print the prompt's text before the answer's")->group(more(output));
  command.add_option("--num-return", a.generate.num_return, "Answers to print, best first")
      ->check(integer())
      ->default_str("1")
      ->group(more("Beam search"));
  several("--processor", a.processor, "KEY=VALUE", "Setting of preprocessor_config.json (repeatable)", images);
  command.add_option("--max-pixels", a.max_pixels, "Most pixels of an image")
      ->check(whole(1, int64_t{1} << 30))
      ->default_str(std::to_string(a.max_pixels))
      ->group(images);
  command.add_option("--decoder-prompt-ids", a.decoder_prompt_ids, "First token ids of the decoder")
      ->type_name("IDS")
      ->default_str("the start token that the model's files name")
      ->group(encoder);
  several("--encoder-input", a.encoder_inputs, "NAME=FILE", "[GRAPH.]NAME=FILE.npy: an array for an input (repeatable)",
          encoder);
  command.add_option("--source-lang", a.source_language, "Language of the prompt")->type_name("CODE")->group(encoder);
  command.add_option("--target-lang", a.target_language, "Language of the answer")->type_name("CODE")->group(encoder);
  add_load_options(command, a, true);
  command.get_option("--naive")->excludes(command.get_option("--draft"));
  add_draft_tokens(command, a);
  add_prefix_cache_option(command, a.generate.prefix_cache, diagnostics);
  command.add_option("--logprobs", a.generate.logprobs, "Report log-probabilities, with N alternatives, in --json")
      ->check(whole(0, int64_t{1} << 30))
      ->group(diagnostics);
  command.add_flag("--report-perplexity", a.generate.report_perplexity, "Report the perplexity of the answer")
      ->group(diagnostics);
  command.add_option("--trace", a.trace, "Write what each thread ran when, for Perfetto or chrome://tracing")
      ->check([](const std::string& file) { return file.empty() ? std::string("a file is wanted") : std::string(); })
      ->type_name("FILE")
      ->group(diagnostics);
}

int run(RunArguments a) {
  if (const Status checked = check_arguments(a); !checked.is_ok())
    return fail(checked.message(), checked.code() == Code::kNoRoom ? kFailed : kRefused);
  const Result<EncoderArguments> encoder = encoder_arguments(a);
  if (!encoder.is_ok()) return fail(encoder.status().message());
  const std::string typed = a.model;
  int code = find_model(a, "run");
  if (code != kDone) return code;
  leave_empty_handed(a);
  std::optional<Model> model = load_model(a, &code);
  if (!model) return code;
  // A speech model may be given what its encoder takes.
  const bool arrays = !a.encoder_inputs.empty();
  code = check_use(*model, typed, {Use::kText, Use::kEncoderDecoder, arrays ? Use::kSpeech : Use::kText});
  if (code != kDone) return code;
  settle_prompt(*model, a);
  if (!model->has_encoder() && !(model->takes_arrays() && encoder->decoder_prompt.empty()))
    if (const Status refused = refuse_encoder_arguments(a); !refused.is_ok()) return fail(refused.message());
  Result<Prompt> prompt = prompt_of(*model, a);
  if (!prompt.is_ok()) return fail(prompt.status().message());
  prompt->decoder_ids = encoder->decoder_prompt;
  if (!encoder->tensors.empty())
    if (const Status given = add_encoder_inputs(*model, encoder->tensors, &*prompt); !given.is_ok())
      return fail(given.message());
  std::optional<Trace> trace;
  if (const Status started = start_trace(*model, a.trace, trace); !started.is_ok()) return fail(started.message());

  model->interrupt_when(note_interrupts(true));
  const bool ids_only = !model->tokenizer().is_there();
  ShownAnswer out;
  bool first = true;
  Waiting waiting(prompt_line(*model, static_cast<int64_t>(prompt->ids().size())));
  Result<Generation> g = model->generate(*prompt, a.generate, [&](const Event& t) {
    waiting.stop();
    if (a.json) return true;
    if (ids_only)
      std::printf(first ? "%lld" : ",%lld", static_cast<long long>(t.id));
    else
      out.write(t);
    first = first && !ids_only && t.text.empty();
    return flush_output();
  });
  waiting.stop();
  out.finish();
  if (!g.is_ok() && !first) std::printf("\n");  // the message begins a line
  if (!g.is_ok()) return fail_load(g.status(), a.load.memory > 0 || a.load.slots > 0);
  if (trace) {
    if (const Status ended = model->record(nullptr); !ended.is_ok()) return fail(ended.message());
    if (const Status written = trace->write(a.trace); !written.is_ok()) {
      if (!first) std::printf("\n");
      return fail(written.message(), kFailed);
    }
  }
  for (const std::string& note : g->notes) std::fprintf(stderr, "situ: note: %s\n", one_line(note).c_str());
  const ModelFacts facts = model->facts();
  if (a.json) {
    std::fputs(json_line(to_json(a, *prompt, *g, facts)).c_str(), stdout);
  } else {
    if (!g->text.empty() || g->tool_calls.empty()) std::printf("\n");
    print_calls(g->tool_calls, out.text());
    print_other_answers(*g, ids_only, out.text());
  }
  if (!flush_output()) return fail_output();  // what goes to stderr must not overtake the text
  if (g->finish_reason == FinishReason::kError) return fail(g->error);
  const bool cancelled = g->finish_reason == FinishReason::kCancelled;
  if (!a.json && !cancelled && g->text.empty() && g->tool_calls.empty() && !ids_only && !a.generate.echo)
    std::fprintf(stderr, "situ: note: %s\n", why_empty(a, *g).c_str());
  if (!a.json || cancelled) print_figures(a, prompt->ids().size(), *g, facts);
  return cancelled ? kInterrupted : kDone;
}

}  // namespace situ::cli
