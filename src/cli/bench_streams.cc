// `situ bench --streams`: the throughput of several prompts that are answered together.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/clock.h"
#include "cli/bench.h"

namespace situ::cli {
namespace {

// `streams` prompts of `prompt` tokens, no two of which begin alike.
std::vector<std::vector<int64_t>> make_prompts(int64_t streams, int64_t prompt, int64_t vocabulary) {
  const std::vector<int64_t> all = make_prompt(streams * prompt, vocabulary);
  std::vector<std::vector<int64_t>> prompts;
  for (int64_t s = 0; s < streams; ++s) prompts.emplace_back(all.begin() + s * prompt, all.begin() + (s + 1) * prompt);
  return prompts;
}

struct Figures {
  double ms = 0, copied = 0;  // mean time of a run; bytes copied per token of the answers
};

// The mean of `reps` runs after one that is not timed. Error: a prompt fails, or its answer is too short.
Result<Figures> measure(Model& model, int64_t streams, const BenchArguments& a) {
  const std::vector<std::vector<int64_t>> prompts = make_prompts(streams, a.prompt, model.facts().vocabulary);
  GenerateOptions options;
  options.max_new_tokens = a.tokens;
  options.ignore_eos = true;
  // Whatever the model's files say: they would be part of what is measured.
  options.repetition_penalty = options.encoder_repetition_penalty = 1;
  options.no_repeat_ngram = options.encoder_no_repeat_ngram = 0;
  Figures figures;
  for (int rep = -1; rep < a.reps; ++rep) {
    model.reset_ledger();
    const auto start = Clock::now();
    const auto answers = model.generate(prompts, options, Model::BatchCallback());
    const double ms = ms_since(start);
    if (!answers.is_ok()) return answers.status();
    for (const Generation& answer : *answers) {
      if (answer.finish_reason == FinishReason::kError) return Status::error(answer.error);
      if (static_cast<int64_t>(answer.output_ids.size()) != a.tokens)
        return Status::error("an answer has " + std::to_string(answer.output_ids.size()) + " tokens instead of " +
                             std::to_string(a.tokens));
    }
    if (rep >= 0) figures.ms += ms / a.reps;
    figures.copied = static_cast<double>(model.ledger().copied) / static_cast<double>(streams * a.tokens);
  }
  return figures;
}

}  // namespace

Result<std::vector<int64_t>> parse_counts(const std::string& option, const std::string& list, int64_t least,
                                          const std::string& noun) {
  std::vector<int64_t> counts;
  std::stringstream parts(list);
  for (std::string part; std::getline(parts, part, ',');) {
    char* end = nullptr;
    const long long count = std::strtoll(part.c_str(), &end, 10);
    if (part.empty() || *end != '\0' || count < least)
      return Status::error(option + " '" + part + "' is not a number of " + noun);
    counts.push_back(count);
  }
  if (counts.empty()) return Status::error(option + " names no number of " + noun);
  return counts;
}

int bench_streams(const BenchArguments& a) {
  constexpr int64_t kMostStreams = 4096;
  const Result<std::vector<int64_t>> counts = parse_counts("--streams", *a.streams, 1, "streams");
  if (!counts.is_ok()) return fail(counts.status().message());
  const int64_t most = *std::max_element(counts->begin(), counts->end());
  if (most > kMostStreams)
    return fail("--streams: " + std::to_string(most) + " are more than " + std::to_string(kMostStreams));
  LoadOptions load;
  load.threads = a.threads;
  load.kv_type = a.kv_type;
  load.pack_cache = !a.no_pack_cache;
  load.batch = load.sequences = most;
  Result<Model> model = Model::load(a.model, load);
  if (!model.is_ok()) return fail(model.status().message());
  if (model->has_encoder()) return fail(no_encoder_in_bench(a.model));
  nlohmann::ordered_json report;
  report["model"] = a.model;
  report["isa"] = model->facts().isa;
  report["threads"] = model->facts().threads;
  report["prompt"] = a.prompt;
  report["tokens"] = a.tokens;
  report["reps"] = a.reps;
  if (!a.json) std::printf("%8s %18s %16s\n", "streams", "answer tokens/s", "copied B/token");
  for (const int64_t streams : *counts) {
    const Result<Figures> figures = measure(*model, streams, a);
    if (!figures.is_ok()) return fail(figures.status().message());
    const double rate = 1000.0 * static_cast<double>(streams * a.tokens) / figures->ms;
    report["rows"].push_back({{"streams", streams},
                              {"ms_mean", figures->ms},
                              {"answer_tokens_per_s_mean", rate},
                              {"bytes_copied_per_token", figures->copied}});
    if (!a.json) std::printf("%8lld %18.1f %16.0f\n", static_cast<long long>(streams), rate, figures->copied);
  }
  if (a.json) std::printf("%s\n", report.dump().c_str());
  return 0;
}

}  // namespace situ::cli
