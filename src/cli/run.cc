#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/trace.h"
#include "cli/commands.h"
#include "pipelines/llm.h"

namespace situ::cli {
namespace {

Result<std::vector<int64_t>> parse_ids(const std::string& text) {
  std::vector<int64_t> ids;
  const char* p = text.data();
  const char* end = p + text.size();
  while (p < end) {
    while (p < end && *p == ' ') ++p;
    int64_t id = 0;
    const auto [next, error] = std::from_chars(p, end, id);
    if (error != std::errc()) return Status::error("--prompt-ids: '" + std::string(p, end) + "' is not a token id");
    ids.push_back(id);
    p = next;
    while (p < end && *p == ' ') ++p;
    if (p == end) break;
    if (*p++ != ',' || p == end) return Status::error("--prompt-ids: ids are separated by commas");
  }
  if (ids.empty()) return Status::error("--prompt-ids is empty");
  return ids;
}

Result<std::vector<int64_t>> prompt_of(const Model& model, const RunArguments& a) {
  if (!a.prompt_ids.empty()) return parse_ids(a.prompt_ids);
  if (!a.prompt) return Status::error("give --prompt TEXT or --prompt-ids 1,2,3");
  if (!a.system && !a.chat) return model.encode(*a.prompt);
  std::vector<Model::Message> messages;
  if (a.system) messages.push_back({"system", *a.system});
  messages.push_back({"user", *a.prompt});
  return model.encode_chat(messages);
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

nlohmann::ordered_json answers_json(const Generation& g) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Generation::Answer& a : g.answers)
    list.push_back(
        {{"output_ids", a.output_ids}, {"text", a.text}, {"finish_reason", a.finish_reason}, {"score", a.score}});
  return list;
}

// Enough for 2,000 calls a step and a few thousand steps; what comes after is counted in the file.
constexpr size_t kMaxTraceEvents = size_t{1} << 22;

}  // namespace

std::string one_line(const std::string& words) {
  std::string line;
  for (const char c : words) {
    char text[8];
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      std::snprintf(text, sizeof(text), "\\x%02x", static_cast<unsigned char>(c));
    if (c == '\n')
      line += "\\n";
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      line += text;
    else
      line += c;
  }
  return line;
}

int fail(const std::string& message) {
  std::fprintf(stderr, "situ: %s\n", one_line(message).c_str());
  return 2;
}

Status load_options(const LoadArguments& a, LoadOptions* load) {
  load->threads = a.threads;
  load->naive = a.naive;
  load->context_length = a.context;
  const Result<int64_t> memory = parse_memory(a.memory);
  if (!memory.is_ok()) return memory.status();
  load->memory = *memory;
  load->chunk = a.chunk;
  load->window = a.window;
  load->sink = a.sink;
  load->kv_type = a.kv_type;
  load->pack_cache = !a.no_pack_cache;
  load->draft = a.draft;
  return Status::ok();
}

Status load_options(const RunArguments& a, LoadOptions* load) {
  load->sequences = std::max<int64_t>(1, a.generate.beams.value_or(1));
  load->batch =
      std::max({load->batch, load->sequences, std::max(a.generate.prompt_lookup, a.generate.draft_tokens) + 1});
  return load_options(static_cast<const LoadArguments&>(a), load);
}

int run(RunArguments a) {
  if (!a.prompt_ids.empty()) {
    if (a.chat || a.system) return fail("--chat and --system make a prompt out of text; --prompt-ids is one already");
    if (Result<std::vector<int64_t>> ids = parse_ids(a.prompt_ids); !ids.is_ok()) return fail(ids.status().message());
  }
  if (const Status resolved = resolve_arguments(a); !resolved.is_ok()) return fail(resolved.message());
  const GenerateOptions& options = a.generate;
  if (options.logprobs && !a.json) return fail("--logprobs is reported with --json");
  LoadOptions load;
  if (const Status made = load_options(a, &load); !made.is_ok()) return fail(made.message());
  Result<Model> model = Model::load(a.model, load);
  if (!model.is_ok()) return fail(model.status().message());
  Result<std::vector<int64_t>> prompt = prompt_of(*model, a);
  if (!prompt.is_ok()) return fail(prompt.status().message());

  std::optional<Trace> trace;
  if (!a.trace.empty()) {
    InPlaceEngine* engine = model->impl().in_place.get();
    if (!engine) return fail("--trace records placed programs; the naive mode has none");
    std::error_code unknown;
    for (const auto& file : model->impl().files.decoder.files)
      if (std::filesystem::equivalent(file->path, a.trace, unknown))
        return fail(a.trace + ": is the model; a trace would take its place");
    // Known before the text is printed, and without a file being touched that a failed run would leave empty.
    if (const std::filesystem::path folder = std::filesystem::absolute(a.trace, unknown).parent_path();
        std::filesystem::is_directory(a.trace, unknown) || !std::filesystem::is_directory(folder, unknown) ||
        access(folder.c_str(), W_OK) != 0)
      return fail(a.trace + ": cannot be written");
    trace.emplace(engine->threads(), kMaxTraceEvents);
    engine->set_trace(&*trace);
  }
  const bool ids_only = !model->has_tokenizer();
  bool first = true;
  Result<Generation> g = model->generate(*prompt, options, [&](const Token& t) {
    if (a.json) return true;
    if (ids_only)
      std::printf(first ? "%lld" : ",%lld", static_cast<long long>(t.id));
    else
      std::fwrite(t.text.data(), 1, t.text.size(), stdout);
    first = false;
    std::fflush(stdout);
    return true;
  });
  if (!g.is_ok() && !first) std::printf("\n");  // the message begins a line
  if (!g.is_ok()) return fail(g.status().message());
  if (trace) {
    model->impl().in_place->set_trace(nullptr);
    if (const Status written = trace->write(a.trace); !written.is_ok()) return fail(written.message());
  }
  for (const std::string& note : g->notes) std::fprintf(stderr, "situ: note: %s\n", one_line(note).c_str());
  const ModelFacts facts = model->facts();
  if (a.json) {
    nlohmann::ordered_json j;
    j["prompt_ids"] = *prompt;
    j["output_ids"] = g->output_ids;
    j["text"] = g->text;
    j["finish_reason"] = g->finish_reason;
    if (g->seed) j["seed"] = *g->seed;
    if (!g->answers.empty()) j["answers"] = answers_json(*g);
    if (options.logprobs) j["logprobs"] = logprobs_json(*g);
    if (options.prompt_lookup > 0 || options.draft_tokens > 0)
      j["speculation"] = {{"guessed", g->guessed_tokens}, {"accepted", g->accepted_tokens}};
    if (options.report_perplexity) j["perplexity"] = g->perplexity ? nlohmann::ordered_json(*g->perplexity) : nullptr;
    j["cached_tokens"] = g->cached_tokens;
    j["load_ms"] = facts.load_ms;
    j["prefill_ms"] = g->prefill_ms;
    j["decode_ms_per_token"] = g->decode_ms_per_token;
    j["bytes_copied_per_token"] = g->bytes_copied_per_token;
    j["bytes_written_per_token"] = g->bytes_written_per_token;
    j["peak_rss_mib"] = peak_rss_mib();
    j["packed_bytes"] = facts.packed_bytes;
    j["mapped_packed_bytes"] = facts.mapped_packed_bytes;
    j["isa"] = facts.isa;
    j["mode"] = facts.mode;
    std::printf("%s\n", j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
    return 0;
  }
  std::printf("\n");
  for (size_t i = 1; i < g->answers.size(); ++i) {
    std::string text = g->answers[i].text;
    if (ids_only)
      for (const int64_t id : g->answers[i].output_ids) text += (text.empty() ? "" : ",") + std::to_string(id);
    std::printf("--\n%s\n", text.c_str());
  }
  std::fflush(stdout);  // the line below goes to stderr and must not overtake the text
  char guesses[64] = "", perplexity[48] = "";
  if (options.prompt_lookup > 0 || options.draft_tokens > 0)
    std::snprintf(guesses, sizeof(guesses), ", %lld of %lld guesses held", static_cast<long long>(g->accepted_tokens),
                  static_cast<long long>(g->guessed_tokens));
  if (g->perplexity) std::snprintf(perplexity, sizeof(perplexity), ", perplexity %.4g", *g->perplexity);
  const double rate = g->decode_ms_per_token > 0 ? 1000.0 / g->decode_ms_per_token : 0;
  std::fprintf(
      stderr, "[%zu prompt + %zu new tokens, %s, %s: prefill %.0f ms, decode %.1f tokens/s, copied %.0f B/token%s%s]\n",
      prompt->size(), g->output_ids.size(), facts.mode.c_str(), facts.isa.c_str(), g->prefill_ms, rate,
      g->bytes_copied_per_token, guesses, perplexity);
  return 0;
}

}  // namespace situ::cli
