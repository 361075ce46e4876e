// `situ bench`: medians and means of prefill and decode at given depths, in place and (--vs naive) literally, taken
// in turn on the same machine in one run. A run of each case that is not timed comes first.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/clock.h"
#include "base/pages.h"
#include "base/tensor.h"
#include "base/thread_pool.h"
#include "cli/bench.h"
#include "cli/bench_kernels.h"
#include "cli/commands.h"
#include "cli/models.h"
#include "cli/options.h"
#include "generate/greedy.h"
#include "kernels/kernel.h"
#include "situ/model.h"
#include "situ/tools.h"

namespace situ::cli {
namespace {

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  const size_t n = v.size();
  return n == 0 ? 0 : n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

double mean(std::vector<double> v) {
  return v.empty() ? 0 : std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(v.size());
}

// decode_ms: the median of the steps of a run; decode_mean_ms: the time from the first step to the last / steps.
struct Sample {
  double prefill_ms = 0, decode_ms = 0, decode_mean_ms = 0, copied = 0, written = 0;
  double alone = 0;  // steps of those that one thread did alone
};

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
  s.prefill_ms = ms_since(start);
  model.reset_ledger();
  std::vector<double> steps;
  const int64_t alone = model.stats().steps_alone;
  const auto first = Clock::now();
  for (int64_t i = 0; i < tokens; ++i) {
    const auto begin = Clock::now();
    const int64_t id = argmax(*logits);
    logits = session->step({&id, 1});
    if (!logits.is_ok()) return logits.status();
    steps.push_back(ms_since(begin));
  }
  s.decode_mean_ms = ms_since(first) / static_cast<double>(tokens);
  s.decode_ms = median(steps);
  s.alone = static_cast<double>(model.stats().steps_alone - alone);
  s.copied = static_cast<double>(model.ledger().copied) / static_cast<double>(tokens);
  s.written = static_cast<double>(model.ledger().computed + model.ledger().copied) / static_cast<double>(tokens);
  return s;
}

// Each number of the samples by itself: its median, or its mean.
Sample each(double (*statistic)(std::vector<double>), const std::vector<Sample>& all) {
  auto of = [&](double Sample::* field) {
    std::vector<double> v;
    for (const Sample& s : all) v.push_back(s.*field);
    return statistic(v);
  };
  return {of(&Sample::prefill_ms), of(&Sample::decode_ms), of(&Sample::decode_mean_ms),
          of(&Sample::copied),     of(&Sample::written),   of(&Sample::alone)};
}

nlohmann::ordered_json to_json(const std::vector<Sample>& samples, int64_t prompt) {
  const Sample middle = each(median, samples), average = each(mean, samples);
  nlohmann::ordered_json j;
  j["prefill_ms"] = middle.prefill_ms;
  j["prefill_ms_mean"] = average.prefill_ms;
  j["prefill_tokens_per_s"] = 1000.0 * static_cast<double>(prompt) / middle.prefill_ms;
  j["decode_ms_per_token"] = middle.decode_ms;
  j["decode_ms_per_token_mean"] = average.decode_mean_ms;
  j["decode_tokens_per_s"] = 1000.0 / middle.decode_ms;
  j["decode_tokens_per_s_mean"] = 1000.0 / average.decode_mean_ms;
  j["bytes_copied_per_token"] = middle.copied;
  j["bytes_written_per_token"] = middle.written;
  j["steps_alone"] = average.alone;
  return j;
}

// Where a decoded token's time goes.
struct StepTable {
  KernelTable kernels;
  // What a token must read (weights as stored, and the state of the past), how fast this machine reads as much
  // memory with as many threads, and the share of that speed that decoding reaches.
  double bytes = 0, bandwidth = 0, roofline = 0;
  double alone = 0;  // of the timed steps of a run, those that one thread did alone (StepThreads)
};

// Reads as much memory as a token does, with as many threads: what decoding cannot be faster than.
class Reader {
 public:
  Reader(int64_t bytes, int threads) : memory_(map_weights(bytes)), pool_(threads) {
    if (!memory_ || bytes <= 0) return;
    for (int64_t i = 0; i < bytes; i += 4096) memory_.get()[i] = std::byte{1};
    data_ = Tensor::borrow(DType::kU8, {bytes}, memory_.get(), memory_);
    sums_ = Tensor::allocate(DType::kU32, {threads});
  }
  // The median of `times` readings, in milliseconds; 0: there is no such memory.
  double measure(int64_t times) {
    std::vector<double> readings;
    const View in = data_.view(), out = sums_.view();
    KernelCall call;
    call.in = &in;
    call.out = &out;
    call.in_count = call.out_count = 1;
    for (int64_t i = 0; i < times && data_.present(); ++i) {
      const auto start = Clock::now();
      pool_.run([&](int t, int n) { kernels().read_stream(call, t, n); });
      readings.push_back(ms_since(start));
    }
    return median(readings);
  }

 private:
  std::shared_ptr<std::byte> memory_;
  Tensor data_, sums_;
  ThreadPool pool_;
};

// The mean over `tokens` traced steps.
Result<StepTable> trace_steps(Model& model, int64_t depth, int64_t tokens) {
  const int64_t calls = model.facts().kernel_calls_per_token;
  Trace trace(model.facts().threads, static_cast<size_t>(calls + 1) * static_cast<size_t>(tokens));
  Result<Session> session = model.new_session();
  if (!session.is_ok()) return session.status();
  const std::vector<int64_t> ids = make_prompt(depth + 1, model.facts().vocabulary);
  auto logits = session->step(ids);
  SITU_RETURN_IF_ERROR(model.record(&trace));
  for (int64_t i = 0; i < tokens && logits.is_ok(); ++i) {
    const int64_t id = argmax(*logits);
    logits = session->step({&id, 1});
  }
  SITU_RETURN_IF_ERROR(model.record(nullptr));
  if (!logits.is_ok()) return logits.status();
  StepTable table{kernel_table(trace, static_cast<double>(tokens))};
  for (const KernelRow& r : table.kernels.rows) table.bytes += r.bytes;
  table.bytes += static_cast<double>(model.facts().state_bytes_per_token * depth);
  return table;
}

void print(const StepTable& table, int64_t depth) {
  std::printf(
      "\nOne token at %lld past tokens reads %.1f MB; this machine reads as much at %.1f GB/s: decoding is at %.0f%% "
      "of the roofline.\n",
      static_cast<long long>(depth), table.bytes / 1e6, table.bandwidth / 1e9, 100 * table.roofline);
  if (table.alone > 0)
    std::printf("One thread did %.1f steps of a run alone, since others had the processors.\n", table.alone);
  std::printf("It takes %.0f us (traced):\n", table.kernels.steps_us);
  print(table.kernels, table.kernels.steps_us);
}

nlohmann::ordered_json to_json(const StepTable& table) {
  nlohmann::ordered_json j;
  j["bytes_read_per_token"] = table.bytes;
  j["read_bandwidth_bytes_per_s"] = table.bandwidth;
  j["roofline_share"] = table.roofline;
  j["token_us"] = table.kernels.steps_us;
  j["wait_us"] = table.kernels.waits_us;
  j["kernels"] = to_json(table.kernels.rows);
  return j;
}

}  // namespace

std::vector<int64_t> make_prompt(int64_t count, int64_t vocabulary) {
  std::vector<int64_t> ids;
  uint64_t x = 1;
  for (int64_t i = 0; i < count; ++i) {
    x = x * 6364136223846793005ull + 1442695040888963407ull;
    ids.push_back(static_cast<int64_t>((x >> 33) % static_cast<uint64_t>(vocabulary)));
  }
  return ids;
}

void add_bench_options(CLI::App& command, BenchArguments& a) {
  constexpr int64_t kMost = int64_t{1} << 20;
  add_model(command, a);
  command.add_option("-p", a.prompt, "Prompt tokens")->check(whole(1, kMost))->default_str(std::to_string(a.prompt));
  command.add_option("-n", a.tokens, "Tokens to generate")
      ->check(whole(2, kMost))
      ->default_str(std::to_string(a.tokens));
  command.add_option("-d", a.depths, "Past tokens before the prompt is timed, one or more: 35,512,2048")
      ->type_name("LIST")
      ->default_str(a.depths);
  command.add_option("--reps", a.reps, "Repetitions; medians are printed, --json has means too")
      ->check(whole(1, 1000))
      ->default_str(std::to_string(a.reps));
  command.add_option("--vs", a.versus, "Compare with the literal graph: naive")
      ->check(
          [](const std::string& text) { return text == "naive" ? std::string() : "'" + text + "' is none of naive"; })
      ->type_name("naive");
  command.add_flag("--json", a.json, "Print one JSON object");
  const std::string group = "Throughput";
  CLI::Option* streams =
      command.add_option("--streams", a.streams, "Requests in flight, -p prompt and -n answer tokens each: 1,4,16")
          ->type_name("LIST")
          ->group(group)
          ->excludes(command.get_option("--vs"))
          ->excludes(command.get_option("-d"));
  const auto beside = [&](CLI::Option* option) { return option->group(group)->needs(streams); };
  beside(command.add_option("--requests", a.requests, "Requests in all"))
      ->check(whole(1, kMost))
      ->default_str("as many as --streams");
  beside(command.add_option("--rate", a.rate, "Requests arrive at random, so many a second on average (Poisson)"))
      ->check(real(1e-9, kAnyNumber));
  beside(command.add_option("--prompt", a.prompts, "Prompt tokens, drawn evenly, in place of -p"))->type_name("A-B");
  beside(command.add_option("--answer", a.answers, "Answer tokens, drawn evenly, in place of -n"))->type_name("A-B");
  CLI::Option* sample = beside(command.add_flag("--sample", a.sample, "Draw tokens at random"));
  beside(command.add_option("--temperature", a.temperature, "Beside --sample"))
      ->check(real(0, kAnyNumber))
      ->default_str("1")
      ->needs(sample);
  beside(command.add_option("--top-p", a.top_p, "Beside --sample"))->check(real(0, 1))->default_str("1")->needs(sample);
  add_prefix_cache_option(command, a.reuse, group);
  add_load_options(command, a);
}

int bench(BenchArguments a) {
  if (a.streams) return bench_streams(a);
  const Result<std::vector<int64_t>> parsed = parse_counts("-d", a.depths, 0, "tokens");
  if (!parsed.is_ok()) return fail(parsed.status().message());
  const std::vector<int64_t>& depths = *parsed;
  const std::string typed = a.model;
  int code = find_model(a, "bench");
  if (code != kDone) return code;
  std::vector<Model> models;
  for (bool naive : {false, true}) {
    if (naive && a.versus.empty()) continue;
    a.load.naive = a.load.naive || naive;
    std::optional<Model> model = load_model(a, &code);
    if (!model) return code;
    if (code = check_use(*model, typed, {Use::kText}); code != kDone) return code;
    model->finish_saving();
    models.push_back(std::move(*model));
  }
  const int64_t context = models[0].facts().context_length;
  for (int64_t depth : depths)
    if (depth > context || a.prompt > context || a.tokens > context || depth + a.prompt + a.tokens > context)
      return fail(typed + ": " + std::to_string(depth) + " past, " + std::to_string(a.prompt) + " prompt and " +
                  std::to_string(a.tokens) + " new tokens do not fit the context of " + std::to_string(context));
  nlohmann::ordered_json report;
  report["model"] = typed;
  report["isa"] = models[0].facts().isa;
  report["threads"] = models[0].facts().threads;
  report["prompt"] = a.prompt;
  report["tokens"] = a.tokens;
  report["reps"] = a.reps;
  std::vector<StepTable> tables;
  if (!a.json)
    std::printf("%8s %10s %14s %14s %16s\n", "past", "mode", "prefill tok/s", "decode tok/s", "copied B/token");
  for (int64_t depth : depths) {
    Result<StepTable> kernels = trace_steps(models[0], depth + a.prompt, a.tokens);
    if (!kernels.is_ok()) return fail(kernels.status().message());
    Reader reader(static_cast<int64_t>(kernels->bytes), models[0].facts().threads);
    std::vector<std::vector<Sample>> samples(models.size());
    std::vector<double> readings;
    // In turn, so that a machine that slows down slows all.
    for (int rep = 0; rep < a.reps; ++rep) {
      readings.push_back(reader.measure(a.tokens));
      for (size_t m = 0; m < models.size(); ++m) {
        Result<Sample> s = measure(models[m], depth, a.prompt, a.tokens);
        if (!s.is_ok()) return fail(s.status().message());
        samples[m].push_back(*s);
      }
    }
    nlohmann::ordered_json row;
    row["past"] = depth;
    for (size_t m = 0; m < models.size(); ++m) {
      const Sample s = each(median, samples[m]);
      const char* mode = m == 0 ? "in-place" : "naive";
      row[mode] = to_json(samples[m], a.prompt);
      if (!a.json)
        std::printf("%8lld %10s %14.1f %14.1f %16.0f\n", static_cast<long long>(depth), mode,
                    1000.0 * static_cast<double>(a.prompt) / s.prefill_ms, 1000.0 / s.decode_ms, s.copied);
    }
    if (const double read_ms = median(readings); read_ms > 0) {
      kernels->bandwidth = kernels->bytes / read_ms * 1000;
      kernels->roofline = read_ms / each(median, samples[0]).decode_ms;
    }
    kernels->alone = each(mean, samples[0]).alone;
    row["kernels"] = to_json(*kernels);
    tables.push_back(std::move(*kernels));
    report["rows"].push_back(row);
  }
  for (size_t i = 0; i < tables.size() && !a.json; ++i) print(tables[i], depths[i] + a.prompt);
  if (a.json) std::printf("%s\n", report.dump().c_str());
  return 0;
}

}  // namespace situ::cli
