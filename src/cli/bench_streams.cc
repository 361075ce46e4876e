// `situ bench --streams`: the throughput and the latencies of requests that are answered together.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <list>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "base/clock.h"
#include "cli/bench.h"
#include "cli/models.h"

namespace situ::cli {
namespace {

// From A to B, both included.
struct Range {
  int64_t from = 0, to = 0;
};
Result<Range> parse_range(const std::string& option, const std::optional<std::string>& text, int64_t otherwise) {
  if (!text) return Range{otherwise, otherwise};
  const char *end = text->data() + text->size(), *at = text->data();
  Range r;
  const auto number = [&](int64_t& to) {
    const auto [next, error] = std::from_chars(at, end, to);
    at = next;
    return error == std::errc() && to >= 1;
  };
  if (!number(r.from) || at == end || *at++ != '-' || !number(r.to) || at != end || r.to < r.from)
    return Status::error(option + " '" + *text + "' is not a range of numbers of tokens, A-B");
  return r;
}

// What is asked for: the same in every run.
struct Asked {
  std::vector<std::vector<int64_t>> prompts;  // no two begin alike
  std::vector<int64_t> answers;               // tokens
  std::vector<double> at_ms;                  // when it arrives, behind the start
};

Asked ask(const Range& prompt, const Range& answer, int64_t requests, const std::optional<double>& rate,
          int64_t vocabulary) {
  std::mt19937_64 random(0);
  const auto draw = [&](const Range& r) {
    return r.from + static_cast<int64_t>(random() % static_cast<uint64_t>(r.to - r.from + 1));
  };
  Asked asked;
  int64_t all = 0;
  std::vector<int64_t> lengths;
  double at = 0;
  for (int64_t i = 0; i < requests; ++i) {
    all += lengths.emplace_back(draw(prompt));
    asked.answers.push_back(draw(answer));
    const double chance = static_cast<double>(random() >> 11) * 0x1p-53;
    asked.at_ms.push_back(at);
    if (rate) at += -std::log1p(-chance) * 1000.0 / *rate;
  }
  const std::vector<int64_t> ids = make_prompt(all, vocabulary);
  for (auto from = ids.begin(); const int64_t length : lengths) {
    asked.prompts.emplace_back(from, from + length);
    from += length;
  }
  return asked;
}

// Milliseconds, of several runs together.
struct Times {
  std::vector<double> all;
  nlohmann::ordered_json percentiles() {
    std::sort(all.begin(), all.end());
    const auto at = [&](double p) {
      return all.empty() ? 0 : all[std::min(all.size() - 1, static_cast<size_t>(p * static_cast<double>(all.size())))];
    };
    return {{"p50", at(0.5)}, {"p95", at(0.95)}, {"p99", at(0.99)}};
  }
};

struct Figures {
  double ms = 0, copied = 0, answer_tokens = 0, all_tokens = 0;  // of a run, the mean
  Times first, between;                                          // first: from submission to the first token
  int64_t steps = 0, preemptions = 0;
};

// A request that runs, and where its next token is awaited.
struct Running {
  Ticket ticket;
  Clock::time_point submitted, last;
  int64_t tokens = 0, wanted = 0;
};

class Bench {
 public:
  Bench(Model& model, const BenchArguments& a, const Asked& asked, int64_t streams)
      : model_(model), a_(a), asked_(asked), streams_(static_cast<size_t>(streams)) {}

  // One run. Error: a request fails, or its answer is too short.
  Status run(Figures* figures) {
    const Stats before = model_.stats();
    start_ = Clock::now();
    next_ = 0;
    while (next_ < asked_.prompts.size() || !running_.empty()) {
      while (next_ < asked_.prompts.size() && running_.size() < streams_ && has_arrived())
        SITU_RETURN_IF_ERROR(submit());
      wait();
      for (Running& r : running_) SITU_RETURN_IF_ERROR(read(r, figures));
      std::erase_if(running_, [](const Running& r) { return r.wanted == 0; });
    }
    if (!figures) return Status::ok();
    figures->ms += ms_since(start_);
    const Stats after = model_.stats();
    double answers = 0, prompts = 0;
    for (size_t i = 0; i < asked_.prompts.size(); ++i) {
      answers += static_cast<double>(asked_.answers[i]);
      prompts += static_cast<double>(asked_.prompts[i].size());
    }
    figures->answer_tokens += answers;
    figures->all_tokens += answers + prompts;
    figures->copied += static_cast<double>(after.bytes_copied - before.bytes_copied) / answers;
    figures->steps += after.steps - before.steps;
    figures->preemptions += after.preemptions - before.preemptions;
    return Status::ok();
  }

 private:
  bool has_arrived() const { return !a_.rate || ms_since(start_) >= asked_.at_ms[next_]; }
  Status submit() {
    Request request;
    request.prompt = Prompt(asked_.prompts[next_]);
    GenerateOptions& o = request.options;
    o.max_new_tokens = asked_.answers[next_];
    o.ignore_eos = true;
    // Whatever the model's files say: they would be part of what is measured.
    o.repetition_penalty = o.encoder_repetition_penalty = 1;
    o.no_repeat_ngram = o.encoder_no_repeat_ngram = 0;
    o.sample = a_.sample;
    o.temperature = a_.temperature;
    o.top_p = a_.top_p;
    if (a_.sample) o.top_k = 0, o.seed = next_;
    o.prefix_cache = a_.reuse;
    request.interactive = a_.rate.has_value();
    // It is asked for when it arrives, though this thread may come to it later.
    const Clock::time_point now = a_.rate ? start_ + std::chrono::duration_cast<Clock::duration>(
                                                         std::chrono::duration<double, std::milli>(asked_.at_ms[next_]))
                                          : Clock::now();
    const int64_t wanted = asked_.answers[next_++];
    Result<Ticket> ticket = model_.submit(std::move(request));
    if (!ticket.is_ok()) return ticket.status();
    running_.push_back({std::move(*ticket), now, now, 0, wanted});
    running_.back().ticket.on_ready([this] {
      const std::lock_guard held(mutex_);
      news_ = true;
      changed_.notify_all();
    });
    return Status::ok();
  }
  void wait() {
    auto patience = std::chrono::duration<double, std::milli>(1000);
    if (next_ < asked_.prompts.size() && running_.size() < streams_)
      patience = std::chrono::duration<double, std::milli>(std::max(0.0, asked_.at_ms[next_] - ms_since(start_)));
    std::unique_lock held(mutex_);
    changed_.wait_for(held, patience, [&] { return news_; });
    news_ = false;
  }
  Status read(Running& r, Figures* figures) {
    while (const std::optional<Event> token = r.ticket.poll()) {
      if (token->id < 0) continue;
      const Clock::time_point now = Clock::now();
      const double ms = std::chrono::duration<double, std::milli>(now - (r.tokens == 0 ? r.submitted : r.last)).count();
      if (figures) (r.tokens == 0 ? figures->first : figures->between).all.push_back(ms);
      r.last = now;
      ++r.tokens;
    }
    if (!r.ticket.ended()) return Status::ok();
    const Result<Generation> g = r.ticket.result();
    if (!g.is_ok()) return g.status();
    if (g->finish_reason == FinishReason::kError) return Status::error(g->error);
    if (std::ssize(g->output_ids) != r.wanted)
      return Status::error("an answer has " + std::to_string(g->output_ids.size()) + " tokens instead of " +
                           std::to_string(r.wanted));
    r.wanted = 0;
    return Status::ok();
  }

  Model& model_;
  const BenchArguments& a_;
  const Asked& asked_;
  const size_t streams_;
  size_t next_ = 0;
  std::list<Running> running_;
  Clock::time_point start_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool news_ = false;
};

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
  const Result<Range> prompt = parse_range("--prompt", a.prompts, a.prompt),
                      answer = parse_range("--answer", a.answers, a.tokens);
  for (const auto* r : {&prompt, &answer})
    if (!r->is_ok()) return fail(r->status().message());
  LoadOptions load;
  load.threads = a.threads;
  load.kv_type = *kv_type_of(a.kv_type);  // the parser knows its names
  load.pack_cache = !a.no_pack_cache;
  load.slots = a.slots;
  load.variants = a.variants;
  std::string path = a.model;
  if (const int code = find_model(path, load, "bench"); code != kDone) return code;
  Result<Model> model = Model::load(path, load);
  if (!model.is_ok()) return fail(model.status().message());
  if (model->has_encoder()) return fail(no_encoder_in_bench(a.model));
  nlohmann::ordered_json report;
  report["model"] = a.model;
  report["isa"] = model->facts().isa;
  report["threads"] = model->facts().threads;
  report["prompt"] = a.prompt;
  report["tokens"] = a.tokens;
  report["reps"] = a.reps;
  if (!a.json)
    std::printf("%8s %18s %16s %24s %24s\n", "streams", "answer tokens/s", "copied B/token", "first token ms p50, p99",
                "between ms p50, p99");
  for (const int64_t streams : *counts) {
    const int64_t requests = a.requests.value_or(streams);
    const Asked asked = ask(*prompt, *answer, requests, a.rate, model->facts().vocabulary);
    Bench bench(*model, a, asked, streams);
    Figures f;
    for (int rep = -1; rep < a.reps; ++rep)  // one that is not timed
      if (const Status done = bench.run(rep < 0 ? nullptr : &f); !done.is_ok()) return fail(done.message());
    const double reps = a.reps, rate = 1000.0 * f.answer_tokens / f.ms;
    nlohmann::ordered_json row{{"streams", streams},
                               {"requests", requests},
                               {"ms_mean", f.ms / reps},
                               {"answer_tokens_per_s_mean", rate},
                               {"total_tokens_per_s", 1000.0 * f.all_tokens / f.ms},
                               {"ttft_ms", f.first.percentiles()},
                               {"itl_ms", f.between.percentiles()},
                               {"steps", f.steps / a.reps},
                               {"preemptions", f.preemptions / a.reps},
                               {"bytes_copied_per_token", f.copied / reps}};
    if (!a.json)
      std::printf("%8lld %18.1f %16.0f %15.1f %8.1f %15.1f %8.1f\n", static_cast<long long>(streams), rate,
                  f.copied / reps, row["ttft_ms"]["p50"].get<double>(), row["ttft_ms"]["p99"].get<double>(),
                  row["itl_ms"]["p50"].get<double>(), row["itl_ms"]["p99"].get<double>());
    report["rows"].push_back(std::move(row));
  }
  if (a.json) std::printf("%s\n", report.dump().c_str());
  return 0;
}

}  // namespace situ::cli
