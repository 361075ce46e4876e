// `situ bench`: medians and means of prefill and decode at given depths, in place and (--vs naive) literally, taken
// in turn on the same machine in one run. A run of each case that is not timed comes first.
#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/clock.h"
#include "base/pages.h"
#include "base/tensor.h"
#include "base/thread_pool.h"
#include "cli/bench.h"
#include "cli/commands.h"
#include "cli/models.h"
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
  return {of(&Sample::prefill_ms), of(&Sample::decode_ms), of(&Sample::decode_mean_ms), of(&Sample::copied),
          of(&Sample::written)};
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
  return j;
}

// Where a decoded token's time goes, by operator: the mean over `tokens` traced steps.
struct KernelRow {
  std::string kind;
  double calls = 0, us = 0, bytes = 0;  // us: summed over calls, of the thread that took longest in each
};
struct StepTable {
  std::vector<KernelRow> rows;  // by time, longest first
  double token_us = 0, wait_us = 0;
  // What a token must read (weights as stored, and the state of the past), how fast this machine reads as much
  // memory with as many threads, and the share of that speed that decoding reaches.
  double bytes = 0, bandwidth = 0, roofline = 0;
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

Result<StepTable> kernel_table(Model& model, int64_t depth, int64_t tokens) {
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
  StepTable table;
  std::map<std::string, KernelRow> rows;
  const double n = static_cast<double>(tokens);
  for (size_t i = 0; i < trace.events(0).size(); ++i) {
    const TraceEvent& first = trace.events(0)[i];
    const Trace::Name& name = trace.names()[static_cast<size_t>(first.name)];
    int64_t longest = first.end - first.begin;
    if (name.kind == "token") {
      table.token_us += static_cast<double>(longest) / 1000.0 / n;
      continue;
    }
    for (int t = 1; t < trace.threads(); ++t) {
      if (trace.events(t).size() + static_cast<size_t>(tokens) != trace.events(0).size())
        continue;  // thread 0 took some steps alone
      // Thread 0 has one event more per step, that of the step itself.
      const TraceEvent& e = trace.events(t)[i - i / static_cast<size_t>(calls + 1)];
      longest = std::max(longest, e.end - e.begin);
    }
    KernelRow& row = rows[name.kind];
    row.calls += 1 / n;
    row.us += static_cast<double>(longest) / 1000.0 / n;
    row.bytes += static_cast<double>(name.bytes) / n;
    table.wait_us += static_cast<double>(first.begin - first.ready) / 1000.0 / n;
  }
  for (auto& [kind, row] : rows) {
    row.kind = kind;
    table.rows.push_back(row);
  }
  std::sort(table.rows.begin(), table.rows.end(), [](const KernelRow& a, const KernelRow& b) { return a.us > b.us; });
  return table;
}

void print(const StepTable& table, int64_t depth) {
  std::printf(
      "\nOne token at %lld past tokens reads %.1f MB; this machine reads as much at %.1f GB/s: decoding is at %.0f%% "
      "of the roofline.\n",
      static_cast<long long>(depth), table.bytes / 1e6, table.bandwidth / 1e9, 100 * table.roofline);
  std::printf("It takes %.0f us, of which thread 0 waits %.0f us at barriers (traced):\n", table.token_us,
              table.wait_us);
  std::printf("%-28s %8s %10s %8s %12s %8s\n", "kernel", "calls", "us", "share", "weight bytes", "GB/s");
  for (const KernelRow& r : table.rows)
    std::printf("%-28s %8.0f %10.1f %7.1f%% %12.0f %8.1f\n", r.kind.c_str(), r.calls, r.us, 100 * r.us / table.token_us,
                r.bytes, r.us > 0 ? r.bytes / r.us / 1000 : 0);
}

nlohmann::ordered_json to_json(const StepTable& table) {
  nlohmann::ordered_json j;
  j["bytes_read_per_token"] = table.bytes;
  j["read_bandwidth_bytes_per_s"] = table.bandwidth;
  j["roofline_share"] = table.roofline;
  j["token_us"] = table.token_us;
  j["wait_us"] = table.wait_us;
  for (const KernelRow& r : table.rows)
    j["kernels"].push_back({{"kernel", r.kind}, {"calls", r.calls}, {"us", r.us}, {"weight_bytes", r.bytes}});
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

std::string no_encoder_in_bench(const std::string& model) {
  return model + ": bench measures decoder-only models; this one has an encoder";
}

int bench(const BenchArguments& a) {
  if (a.streams) return bench_streams(a);
  const Result<std::vector<int64_t>> parsed = parse_counts("-d", a.depths, 0, "tokens");
  if (!parsed.is_ok()) return fail(parsed.status().message());
  const std::vector<int64_t>& depths = *parsed;
  LoadOptions load;
  load.threads = a.threads;
  load.kv_type = *kv_type_of(a.kv_type);  // the parser knows its names
  load.pack_cache = !a.no_pack_cache;
  load.variants = a.variants;
  std::string path = a.model;
  if (const int code = find_model(path, load, "bench"); code != kDone) return code;
  std::vector<Model> models;
  for (bool naive : {false, true}) {
    if (naive && a.versus.empty()) continue;
    load.naive = naive;
    Result<Model> m = Model::load(path, load);
    if (!m.is_ok()) return fail(m.status().message());
    if (m->has_encoder()) return fail(no_encoder_in_bench(a.model));
    m->finish_saving();
    models.push_back(std::move(*m));
  }
  const int64_t context = models[0].facts().context_length;
  for (int64_t depth : depths)
    if (depth > context || a.prompt > context || a.tokens > context || depth + a.prompt + a.tokens > context)
      return fail(a.model + ": " + std::to_string(depth) + " past, " + std::to_string(a.prompt) + " prompt and " +
                  std::to_string(a.tokens) + " new tokens do not fit the context of " + std::to_string(context));
  nlohmann::ordered_json report;
  report["model"] = a.model;
  report["isa"] = models[0].facts().isa;
  report["threads"] = models[0].facts().threads;
  report["prompt"] = a.prompt;
  report["tokens"] = a.tokens;
  report["reps"] = a.reps;
  std::vector<StepTable> tables;
  if (!a.json)
    std::printf("%8s %10s %14s %14s %16s\n", "past", "mode", "prefill tok/s", "decode tok/s", "copied B/token");
  for (int64_t depth : depths) {
    Result<StepTable> kernels = kernel_table(models[0], depth + a.prompt, a.tokens);
    if (!kernels.is_ok()) return fail(kernels.status().message());
    for (const KernelRow& r : kernels->rows) kernels->bytes += r.bytes;
    kernels->bytes += static_cast<double>(models[0].facts().state_bytes_per_token * (depth + a.prompt));
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
    row["kernels"] = to_json(*kernels);
    tables.push_back(std::move(*kernels));
    report["rows"].push_back(row);
  }
  for (size_t i = 0; i < tables.size() && !a.json; ++i) print(tables[i], depths[i] + a.prompt);
  if (a.json) std::printf("%s\n", report.dump().c_str());
  return 0;
}

}  // namespace situ::cli
