// What follows a step: decodings settle, what they have found is delivered, those that have ended go.
#include "requests/lane.h"

namespace situ {

void Scheduler::settle(Lane& lane) {
  for (const auto& job : lane.running) {
    Decoding& decoding = *job->decoding;
    try {
      if (!decoding.ended() && job->begun) {
        decoding.settle();
        job->begun = !decoding.begins_again();
      }
    } catch (...) {
      decoding.fail(thrown());
    }
    if (!job->prompt_is_done && decoding.answers()) {
      job->prompt_is_done = true;
      job->prompt_done = Clock::now();
      job->figures.prompt_ms += std::chrono::duration<double, std::milli>(job->prompt_done - job->prompt_begun).count();
    }
    try {
      if (!decoding.ended() && decoding.has_news()) job->deliver(decoding.take_news());
    } catch (...) {
      decoding.fail(thrown());
    }
  }
  conclude_ended(lane, lane.running);
  if (lane.running.empty()) lane.served.full = false;
}

// What the caller is told at the end; its slots are free.
void Scheduler::conclude(Lane& lane, Job& job) {
  Decoding& decoding = *job.decoding;
  if (job.prompt_is_done) job.figures.decode_ms = ms_since(job.prompt_done);
  Result<Generation>& result = job.outcome.emplace(or_thrown([&] { return decoding.finish(job.figures); }));
  decoding.release();
  if (result.is_ok()) {
    if (result->answers.empty()) lane.stats.answer_tokens += std::ssize(result->output_ids);
    for (const Generation::Answer& a : result->answers) lane.stats.answer_tokens += std::ssize(a.output_ids);
    lane.stats.cached_tokens += result->cached_tokens;
    lane.stats.prompt_tokens += decoding.prompt_tokens();
  }
  constexpr int64_t kSometimes = 64;
  if (lane.served.in_place && (++lane.ended % kSometimes == 0 || lane.running.size() + lane.waiting.size() <= 1))
    lane.served.in_place->give_back();
}

// Of these the ones that have ended go. Whoever hears of an end finds it in the statistics.
void Scheduler::conclude_ended(Lane& lane, std::vector<std::shared_ptr<Job>>& jobs) {
  const auto ended =
      std::stable_partition(jobs.begin(), jobs.end(), [](const auto& j) { return !j->decoding->ended(); });
  for (auto job = ended; job != jobs.end(); ++job) conclude(lane, **job);
  if (&jobs == &lane.waiting)
    lane.served.waiting.fetch_sub(jobs.end() - ended);
  else
    lane.served.running = ended - jobs.begin();
  if (ended != jobs.end()) lane.served.frame.put(stats_of(lane));
  for (auto it = ended; it != jobs.end(); ++it) {
    Job& job = **it;
    try {
      if (job.decoding->has_news()) job.deliver(job.decoding->take_news());
    } catch (...) {
      job.outcome.emplace(thrown());
    }
    job.finish(*std::exchange(job.outcome, std::nullopt));
  }
  jobs.erase(ended, jobs.end());
}

void Scheduler::end_all(Lane& lane) {
  drop_texts(lane);
  for (auto* jobs : {&lane.waiting, &lane.running}) {
    for (const auto& job : *jobs) job->decoding->end(FinishReason::kCancelled);
    conclude_ended(lane, *jobs);
  }
}

}  // namespace situ
