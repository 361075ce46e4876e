// `situ bench`: medians of prefill and decode at given depths, in place and (--vs naive) literally, taken
// in turn on the same machine in one run.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/commands.h"
#include "generate/greedy.h"

namespace situ::cli {
namespace {

using Clock = std::chrono::steady_clock;

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  const size_t n = v.size();
  return n == 0 ? 0 : n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

struct Sample {
  double prefill_ms = 0, decode_ms = 0, copied = 0, written = 0;
};

// Prompt tokens that need no tokenizer: a repeatable sequence of ids below the vocabulary.
std::vector<int64_t> make_prompt(int64_t count, int64_t vocabulary) {
  std::vector<int64_t> ids;
  uint64_t x = 1;
  for (int64_t i = 0; i < count; ++i) {
    x = x * 6364136223846793005ull + 1442695040888963407ull;
    ids.push_back(static_cast<int64_t>((x >> 33) % static_cast<uint64_t>(vocabulary)));
  }
  return ids;
}

// One run: `depth` tokens untimed, `prompt` tokens timed, then `tokens` greedy steps timed.
Result<Sample> measure(Model& model, int64_t depth, int64_t prompt, int64_t tokens) {
  Result<Session> session = model.new_session();
  if (!session.is_ok()) return session.status();
  const std::vector<int64_t> ids = make_prompt(depth + prompt, model.facts().vocabulary);
  if (depth > 0)
    if (auto r = session->step({ids.data(), static_cast<size_t>(depth)}); !r.is_ok()) return r.status();
  Sample s;
  const auto start = Clock::now();
  auto logits = session->step({ids.data() + depth, static_cast<size_t>(prompt)});
  if (!logits.is_ok()) return logits.status();
  s.prefill_ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  model.reset_ledger();
  std::vector<double> steps;
  for (int64_t i = 0; i < tokens; ++i) {
    const auto begin = Clock::now();
    const int64_t id = argmax(*logits);
    logits = session->step({&id, 1});
    if (!logits.is_ok()) return logits.status();
    steps.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  }
  s.decode_ms = median(steps);
  s.copied = static_cast<double>(model.ledger().copied) / static_cast<double>(tokens);
  s.written = static_cast<double>(model.ledger().computed + model.ledger().copied) / static_cast<double>(tokens);
  return s;
}

Sample medians(const std::vector<Sample>& all) {
  auto of = [&](double Sample::* field) {
    std::vector<double> v;
    for (const Sample& s : all) v.push_back(s.*field);
    return median(v);
  };
  return {of(&Sample::prefill_ms), of(&Sample::decode_ms), of(&Sample::copied), of(&Sample::written)};
}

nlohmann::ordered_json to_json(const Sample& s, int64_t prompt) {
  nlohmann::ordered_json j;
  j["prefill_ms"] = s.prefill_ms;
  j["prefill_tokens_per_s"] = 1000.0 * static_cast<double>(prompt) / s.prefill_ms;
  j["decode_ms_per_token"] = s.decode_ms;
  j["decode_tokens_per_s"] = 1000.0 / s.decode_ms;
  j["bytes_copied_per_token"] = s.copied;
  j["bytes_written_per_token"] = s.written;
  return j;
}

}  // namespace

int bench(const BenchArguments& a) {
  std::vector<int64_t> depths;
  std::stringstream list(a.depths);
  for (std::string d; std::getline(list, d, ',');) {
    char* end = nullptr;
    const long long depth = std::strtoll(d.c_str(), &end, 10);
    if (d.empty() || *end != '\0' || depth < 0) return fail("-d '" + d + "' is not a number of tokens");
    depths.push_back(depth);
  }
  LoadOptions load;
  load.threads = a.threads;
  std::vector<Model> models;
  for (bool naive : {false, true}) {
    if (naive && a.versus.empty()) continue;
    load.naive = naive;
    Result<Model> m = Model::load(a.model, load);
    if (!m.is_ok()) return fail(m.status().message());
    models.push_back(std::move(*m));
  }
  const int64_t context = models[0].facts().context_length;
  for (int64_t depth : depths)
    if (depth > context || a.prompt > context || a.tokens > context || depth + a.prompt + a.tokens > context)
      return fail(std::to_string(depth) + " past, " + std::to_string(a.prompt) + " prompt and " + std::to_string(a.tokens) + " new tokens do not fit the context of " + std::to_string(context));
  nlohmann::ordered_json report;
  report["model"] = a.model;
  report["isa"] = models[0].facts().isa;
  report["threads"] = models[0].facts().threads;
  report["prompt"] = a.prompt;
  report["tokens"] = a.tokens;
  report["reps"] = a.reps;
  if (!a.json) std::printf("%8s %10s %14s %14s %16s\n", "past", "mode", "prefill tok/s", "decode tok/s", "copied B/token");
  for (int64_t depth : depths) {
    std::vector<std::vector<Sample>> samples(models.size());
    // In turn, so that a machine that slows down slows both.
    for (int rep = 0; rep < a.reps; ++rep)
      for (size_t m = 0; m < models.size(); ++m) {
        Result<Sample> s = measure(models[m], depth, a.prompt, a.tokens);
        if (!s.is_ok()) return fail(s.status().message());
        samples[m].push_back(*s);
      }
    nlohmann::ordered_json row;
    row["past"] = depth;
    for (size_t m = 0; m < models.size(); ++m) {
      const Sample s = medians(samples[m]);
      const char* mode = m == 0 ? "in-place" : "naive";
      row[mode] = to_json(s, a.prompt);
      if (!a.json)
        std::printf("%8lld %10s %14.1f %14.1f %16.0f\n", static_cast<long long>(depth), mode, 1000.0 * static_cast<double>(a.prompt) / s.prefill_ms, 1000.0 / s.decode_ms, s.copied);
    }
    report["rows"].push_back(row);
  }
  if (a.json) std::printf("%s\n", report.dump().c_str());
  return 0;
}

}  // namespace situ::cli
