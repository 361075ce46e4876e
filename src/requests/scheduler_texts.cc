// Texts for embeddings: steps of an encoder that has no state.
#include <map>

#include "requests/lane.h"
#include "requests/text_decoding.h"

namespace situ {

void Scheduler::drop_texts(Lane& lane) {
  if (!lane.texts.empty()) lane.served.text_encoder->drop();
  lane.texts.clear();
  lane.texts_ms = 0;
}

// The texts of the next step: one of each request, then further ones, as far as one step takes them.
void Scheduler::gather_texts(Lane& lane) {
  std::vector<TextTokens> texts;
  const int64_t most = std::max<int64_t>(1, lane.encoder.prompt_rows(0, lane.served.text_encoder->chunk(), budget_));
  struct Caller {
    std::shared_ptr<Job> job;
    std::span<const TextTokens> left;
  };
  std::vector<Caller> callers;
  for (const auto& job : lane.running)
    if (TextDecoding* const decoding = job->begun && !job->decoding->ended() ? job->decoding->of_texts() : nullptr)
      callers.push_back({job, decoding->texts_left()});
  while (!callers.empty())
    std::erase_if(callers, [&](Caller& caller) {
      if (caller.left.empty()) return true;
      texts.push_back(caller.left[0]);
      if (lane.served.text_encoder->share_step(texts, most) < texts.size()) {
        texts.pop_back();  // there may be room for that of another
        return true;
      }
      lane.texts.push_back(caller.job);
      caller.left = caller.left.subspan(1);
      return false;
    });
}

// A step of the encoder with texts of all who wait for some, or the next slice of one.
void Scheduler::step_texts(Lane& lane) {
  if (!lane.served.text_encoder) return;
  // What the texts of a request refer to goes with its end.
  if (std::ranges::any_of(lane.texts, [](const auto& job) { return job->decoding->ended(); })) drop_texts(lane);
  if (lane.texts.empty()) gather_texts(lane);
  if (lane.texts.empty()) return;
  lane.idle = false;
  const double room = lane.encoder.encoder_ms(0, budget_);
  if (budget_.fed && budget_.interactive && room <= 0) return;  // another model was first
  const Clock::time_point start = Clock::now();
  const std::chrono::duration<double, std::milli> slice(room);
  Result<bool> done = run_texts(lane, 0, lane.texts.size(), start + std::chrono::duration_cast<Clock::duration>(slice));
  const double ms = ms_since(start);
  lane.texts_ms += ms;
  budget_.spent_ms += ms;
  budget_.fed = true;
  if (done.is_ok() && !*done) return;
  if (!done.is_ok() && done.status().code() != Code::kInterrupted)
    for (size_t i = 0; i < lane.texts.size(); ++i)  // whose text it is
      if (const auto alone = run_texts(lane, i, 1, Clock::time_point::max()); !alone.is_ok())
        lane.texts[i]->decoding->fail(alone.status());
  lane.texts.clear();
  lane.texts_ms = 0;
}

Result<bool> Scheduler::run_texts(Lane& lane, size_t first, size_t count, Clock::time_point until) {
  const std::span jobs = std::span(lane.texts).subspan(first, count);
  std::vector<TextTokens> texts;
  std::map<const Job*, size_t> next;
  std::vector<Job*> who;
  for (const auto& job : jobs) {
    const std::span<const TextTokens> left = job->decoding->of_texts()->texts_left();
    if (!job->decoding->ended() && next[job.get()] < left.size())
      texts.push_back(left[next[job.get()]++]), who.push_back(job.get());
  }
  if (texts.empty()) return true;
  int64_t tokens = 0;
  for (const TextTokens& text : texts) tokens += std::ssize(text.ids);
  stepping(who);
  const Clock::time_point start = Clock::now();
  Result<bool> done = or_thrown([&] {
    return lane.served.text_encoder->step(texts, until, [&](size_t i, std::span<const float> rows) {
      who[i]->decoding->of_texts()->take_rows(rows);
      return Status::ok();
    });
  });
  stepping({});
  if (done.is_ok() && *done) {
    lane.encoder.cost.learn(lane.texts_ms + ms_since(start), 0, tokens);
    ++lane.stats.steps;
    lane.stats.rows += tokens;
  }
  return done;
}

}  // namespace situ
