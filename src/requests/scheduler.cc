// From top to bottom: what other threads call; the thread's loop; a step of a model.
#include "requests/scheduler.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <ranges>

#include "requests/lane.h"

namespace situ {

// -- what other threads call

Scheduler::Scheduler(ThreadPool& pool) : pool_(pool), meeting_(std::make_unique<Meeting>()) {}

Scheduler::~Scheduler() {
  if (process_ == getpid()) {
    const std::lock_guard held(meeting_->mutex);
    meeting_->stop = true;
    meeting_->changed.notify_all();
  } else if (process_ != 0) {
    static_cast<void>(meeting_.release());  // its threads are not in this process
  }
  thread_.clear();
}

// Where threads meet in this process, whose thread has begun.
Scheduler::Meeting& Scheduler::meet() {
  const std::lock_guard held(start_mutex_);
  if (process_ == getpid()) return *meeting_;
  if (process_ != 0) static_cast<void>(meeting_.release());
  meeting_ = std::make_unique<Meeting>();
  thread_.clear();
  thread_.emplace_back([this] { work(); });
  process_ = getpid();
  return *meeting_;
}

void Scheduler::add(Served& served) {
  call([&] {
    lanes_.push_back(std::make_unique<Lane>(served));
    served.scheduler = this;
    return true;
  });
}

void Scheduler::remove(Served& served) {
  call([&] {
    const auto lane = std::find_if(lanes_.begin(), lanes_.end(), [&](const auto& l) { return &l->served == &served; });
    if (lane == lanes_.end()) return false;
    end_all(**lane);
    lanes_.erase(lane);
    return true;
  });
}

Result<std::shared_ptr<Job>> Scheduler::submit(std::unique_ptr<Decoding> decoding, Treatment treatment) {
  const Served& served = decoding->served();
  if (const int64_t waiting = served.waiting - served.room(); waiting >= served.queue_limit)
    return Status::error(Code::kBusy, served.file + ": " + std::to_string(waiting) + " requests wait already");
  return submit_part(std::move(decoding), std::move(treatment));
}

std::shared_ptr<Job> Scheduler::submit_part(std::unique_ptr<Decoding> decoding, Treatment treatment) {
  auto job = std::make_shared<Job>(std::move(decoding), std::move(treatment));
  job->number = submitted_.fetch_add(1);
  job->on_cancel = [this] { note_cancel(); };
  Meeting& m = meet();
  const std::lock_guard held(m.mutex);
  m.submitted.push_back(job);
  job->decoding->served().waiting.fetch_add(1);
  m.changed.notify_all();
  return job;
}

void Scheduler::call_by_thread(void (*run)(void*), void* argument) {
  Call call{run, argument, nullptr, {}};
  Meeting& m = meet();
  if (const std::unique_lock turn(turn_, std::try_to_lock); turn.owns_lock()) {
    collect(m, false);
    return run(argument);
  }
  {
    const std::lock_guard held(m.mutex);
    (m.last_call ? m.last_call->next : m.first_call) = &call;
    m.last_call = &call;
    m.changed.notify_all();
  }
  call.done.wait(false);
}

void Scheduler::discard(std::unique_ptr<Discarded> strand) {
  Meeting& m = meet();
  const std::lock_guard held(m.mutex);
  strand->next = std::move(m.discarded);
  m.discarded = std::move(strand);
  m.changed.notify_all();
}

void Scheduler::wake() {
  Meeting& m = meet();
  const std::lock_guard held(m.mutex);
  m.news = true;
  m.changed.notify_all();
}

// Where all that take part in what runs are cancelled, it ends at once.
void Scheduler::note_cancel() {
  wake();
  const std::lock_guard held(stepping_mutex_);
  if (!stepping_.empty() &&
      std::all_of(stepping_.begin(), stepping_.end(), [](const Job* j) { return j->cancelled(); }))
    abort_ = true;
}

Stats Scheduler::stats(Served& served) {
  Meeting& m = meet();
  if (const std::unique_lock turn(turn_, std::try_to_lock); turn.owns_lock()) {
    collect(m, false);
    served.frame.put(stats_of(lane_of(served)));
  }
  Stats s = served.frame.stats();
  s.running = served.running;
  s.waiting = served.waiting;
  return s;
}

std::shared_ptr<const Picture> Scheduler::picture(Served& served) {
  served.frame.ask();
  wake();
  return served.frame.picture();
}

// -- the thread

Stats Scheduler::stats_of(const Lane& lane) {
  Stats s = lane.stats;
  s.running = lane.served.running;
  s.waiting = lane.served.waiting;
  s.bytes_copied = lane.served.ledger().copied;
  if (!lane.served.in_place) return s;
  s.steps_alone = lane.served.in_place->alone_steps();
  s.slots = lane.served.in_place->states().capacity();
  s.slots_free = lane.served.in_place->states().free_slots();
  if (const PrefixCache* prefixes = lane.served.prefixes()) s.slots_kept = prefixes->slots();
  return s;
}

// Leaves a picture of the model.
void Scheduler::look(const Lane& lane) try {
  auto picture = std::make_shared<Picture>();
  picture->stats = stats_of(lane);
  picture->bytes_written = lane.served.ledger().computed;
  for (const auto* jobs : {&lane.running, &lane.waiting})
    for (const auto& job : *jobs) {
      const char* const state = jobs == &lane.running ? job->decoding->answers() ? "answer" : "prompt"
                                : job->preempted      ? "preempted"
                                                      : "waiting";
      std::vector<const Strand*> strands;
      job->decoding->strands(strands);
      const size_t before = picture->holders.size();
      for (const Strand* s : strands) {
        if (!s->sequence || s->sequence->kept() == 0) continue;
        picture->holders.push_back({job->number, state, s->sequence->kept(), {}});
        Picture::Holder& holder = picture->holders.back();
        const Space& slots = lane.served.in_place->states().space(SpaceKind::kAppend);
        for (const Run& run : s->sequence->runs())
          for (int64_t at = run.first_slot, end = at + run.length; at < end;) {
            const int64_t alike = slots.alike({at, end - at});
            holder.parts.push_back({at, alike, slots.shared(at)});
            at += alike;
          }
      }
      if (picture->holders.size() == before) picture->holders.push_back({job->number, state, 0, {}});
    }
  lane.served.frame.put(std::move(picture));
} catch (const std::bad_alloc&) {  // then there is none
}

// What came meanwhile, by whoever has the turn: requests go to their models, slots back. Returns the calls, which the
// scheduler's thread takes.
Scheduler::Call* Scheduler::collect(Meeting& m, bool own_thread) {
  std::vector<std::shared_ptr<Job>> submitted;
  std::unique_ptr<Discarded> discarded;
  Call* calls = nullptr;
  {
    const std::lock_guard held(m.mutex);
    submitted.swap(m.submitted);
    discarded = std::move(m.discarded);
    if (own_thread) {
      m.news = false;
      calls = std::exchange(m.first_call, nullptr);
      m.last_call = nullptr;
    } else if (!submitted.empty()) {
      m.news = true;  // so that the thread sees them
      m.changed.notify_all();
    }
  }
  while (discarded) discarded = std::move(discarded->next);
  for (std::shared_ptr<Job>& job : submitted) try {
      lane_of(job->decoding->served()).waiting.push_back(job);
    } catch (const std::bad_alloc&) {
      job->decoding->served().waiting.fetch_sub(1);
      job->decoding->release();
      job->finish(Status::error(Code::kNoRoom, "out of memory"));
    }
  return calls;
}

void Scheduler::work() {
  Meeting& m = *meeting_;
  bool busy = false;  // requests wait or run
  bool idle = false;  // they do, but for what others build
  for (;;) {
    {
      std::unique_lock held(m.mutex);
      const auto news = [&] { return m.stop || m.first_call || m.discarded || m.news || !m.submitted.empty() || busy; };
      constexpr std::chrono::milliseconds kLook{1};
      if (idle)
        m.changed.wait_for(held, kLook, news);
      else
        m.changed.wait(held, news);
      if (m.stop) return;
    }
    const std::lock_guard turn(turn_);
    Call* calls = collect(m, true);
    while (calls) {
      Call* const call = calls;
      calls = call->next;
      call->run(call->argument);
      call->done = true;
      call->done.notify_all();
    }
    begin_round();
    for (size_t i = 0; i < lanes_.size(); ++i) {
      Lane& lane = *lanes_[i];
      budget_.interactive = is_awaited(i);
      budget_.later = budget_.interactive && i < first_fed_;
      step(lane);
      lane.served.frame.put(stats_of(lane));
      if (lane.served.frame.wanted()) look(lane);
    }
    pool_.interrupt_when(nullptr);
    busy = idle = false;
    for (const auto& l : lanes_)
      if (!l->waiting.empty() || !l->running.empty()) (l->idle ? idle : busy) = true;
  }
}

Scheduler::Lane& Scheduler::lane_of(const Served& served) {
  return **std::find_if(lanes_.begin(), lanes_.end(), [&](const auto& l) { return &l->served == &served; });
}

// -- a step of a model

// Who is late ends (sweep); encoders go on, and who waits begins (go_on, admit); the decodings say what they want next,
// which becomes few runs of programs (pick), each of which is fed and gives its logits to the decodings (run, take);
// then these fork, rewind, and what they have found is delivered (settle).
void Scheduler::step(Lane& lane) {
  if (lane.running.empty() && lane.waiting.empty()) return;
  try {
    sweep(lane);
    const Clock::time_point start = Clock::now();
    const std::chrono::duration<double, std::milli> encoders(lane.policy.encoder_ms(lane.answers(), budget_));
    const auto until = start + std::chrono::duration_cast<Clock::duration>(encoders);
    lane.idle = !lane.running.empty();
    go_on(lane, until);
    admit(lane, until);
    budget_.spent_ms += ms_since(start);
    for (std::vector<Picked>& group : pick(lane)) run(lane, group);
    step_texts(lane);
    lane.failures = 0;
  } catch (const std::bad_alloc&) {  // in what changes nothing: it is tried again, but not for ever
    constexpr int kMostFailures = 8;
    if (++lane.failures < kMostFailures) return;
    lane.failures = 0;
    for (const auto& job : lane.running.empty() ? lane.waiting : lane.running)
      job->decoding->fail(Status::error(Code::kNoRoom, "out of memory"));
  } catch (...) {
    const Status why = thrown();
    for (const auto& job : lane.running) job->decoding->fail(why);
  }
  settle(lane);
}

// Who is cancelled, or is late, ends.
void Scheduler::sweep(Lane& lane) {
  const Clock::time_point now = Clock::now();
  for (auto* jobs : {&lane.waiting, &lane.running})
    for (const auto& job : *jobs)
      if (job->cancelled() || job->interrupted())
        job->decoding->end(FinishReason::kCancelled);
      else if (job->treatment.deadline && *job->treatment.deadline <= now)
        job->decoding->end(FinishReason::kDeadline);
  conclude_ended(lane, lane.waiting);
}

// A round is a step of each model, in the same order each time: in another order a model would make two steps between
// two of its neighbour's. What prompts take in a round they share; whose are fed first changes from round to round.
void Scheduler::begin_round() {
  budget_ = {};
  if (lanes_.empty()) return;
  const size_t from = (first_fed_ + 1) % lanes_.size();
  first_fed_ = from;
  bool found = false;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const size_t at = (from + i) % lanes_.size();
    Lane& lane = *lanes_[at];
    lane.watched = lane.answers_now = false;
    int64_t rows = 0;  // of prompts
    for (const auto* jobs : {&lane.waiting, &lane.running})
      for (const auto& job : *jobs) {
        const bool answers = job->decoding->answers();
        // One that answers and waits begins again.
        const int64_t tokens = answers && jobs == &lane.running ? 0 : job->decoding->tokens_to_feed();
        rows += tokens;
        lane.watched = lane.watched || (answers && job->treatment.interactive);
        lane.answers_now = lane.answers_now || answers || (tokens > 0 && tokens <= lane.served.chunk());
      }
    budget_.backlog_ms += lane.policy.cost.row_ms() * static_cast<double>(rows);
    if (rows > 0 && !std::exchange(found, true)) first_fed_ = at;
  }
}

// Whether the prompts of a model leave time to those who wait for tokens: for a stream's, of whichever model, and for
// what another model answers with in this round, also where that is its first token or is not streamed: in the one
// round in which a short prompt was read, its neighbour's whole step would stand before its second token.
bool Scheduler::is_awaited(size_t lane) const {
  for (size_t i = 0; i < lanes_.size(); ++i)
    if (lanes_[i]->watched || (i != lane && lanes_[i]->answers_now)) return true;
  return false;
}

// Encoders of requests that were admitted, in their order.
void Scheduler::go_on(Lane& lane, Clock::time_point until) {
  for (size_t i = 0; i < lane.running.size();) {
    Job& job = *lane.running[i];
    if (!job.begun && !job.decoding->ended() && !begin(lane, job, until))
      give_up(lane, i);
    else
      ++i;
  }
}

// Whether there is room for one that waits. One for which there never is ends.
bool Scheduler::fits(const Lane& lane, Job& job) const {
  if (!lane.served.in_place) return true;
  Decoding& decoding = *job.decoding;
  const StatePool& states = lane.served.in_place->states();
  const bool slots = states.bytes_per_slot() > 0, over = job.preempted && decoding.answers();
  const auto needed = [&] { return slots ? decoding.tokens_to_feed() : 0; };
  Policy::Room room{states.free_slots(), 0, states.capacity(), lane.running.empty()};
  if (needed() > room.capacity && over) decoding.take_turns();
  if (needed() > room.capacity && over)
    decoding.end(FinishReason::kLength);  // as it would have ended had it not given way
  else if (needed() > room.capacity)
    decoding.fail(Status::error(Code::kNoRoom, lane.served.file + ": a prompt of " + std::to_string(needed()) +
                                                   " tokens does not fit the state of " +
                                                   std::to_string(room.capacity) + " slots"));
  if (decoding.ended() || room.alone || (needed() == 0 && decoding.source_rows() == 0)) return true;
  if (const PrefixCache* prefixes = lane.served.prefixes()) room.free += prefixes->evictable();
  for (const auto& other : lane.running)
    if (slots && !other->decoding->ended() && !lane.served.in_place->has_window())
      room.promised += other->decoding->tokens_to_feed();
  return Policy::fits(needed(), room) && states.space(SpaceKind::kSource).fits(decoding.source_rows());
}

void Scheduler::admit(Lane& lane, Clock::time_point until) {
  Served& served = lane.served;
  const int64_t most = std::min(served.rows(), served.running_limit);
  served.full = false;
  if (lane.waiting.empty() || std::ssize(lane.running) >= most) return;
  std::vector<Policy::Waiting> waiting;
  for (const auto& job : lane.waiting)
    waiting.push_back(
        {job->treatment.priority, job->treatment.client, job->preempted, job->number, job->seconds(), job->passed});
  while (!waiting.empty() && std::ssize(lane.running) < most) {
    const size_t chosen = lane.policy.choose(waiting, [&](size_t i) { return fits(lane, *lane.waiting[i]); });
    for (size_t i = 0; i < waiting.size(); ++i) lane.waiting[i]->passed = waiting[i].passed;
    lane.running.reserve(lane.running.size() + 1);
    served.full = chosen == waiting.size() ||
                  (!lane.waiting[chosen]->decoding->ended() && !begin(lane, *lane.waiting[chosen], until));
    if (served.full) return;
    const std::shared_ptr<Job> job = lane.waiting[chosen];
    job->level = std::max(job->level, Policy::level(waiting[chosen], waiting));
    lane.policy.admitted(waiting[chosen]);
    const auto at = static_cast<std::ptrdiff_t>(chosen);
    lane.waiting.erase(lane.waiting.begin() + at);
    waiting.erase(waiting.begin() + at);
    served.waiting.fetch_sub(1);
    lane.running.push_back(job);
    served.running = std::ssize(lane.running);
  }
}

// Or goes on with that. False: there is no room for it as long as others run.
bool Scheduler::begin(Lane& lane, Job& job, Clock::time_point until) {
  stepping({&job});
  const Ledger before = lane.served.ledger();
  const Result<bool> begun = or_thrown([&] { return job.decoding->begin(until, job.figures); });
  job.figures.encode.computed += static_cast<double>(lane.served.ledger().computed - before.computed);
  job.figures.encode.copied += static_cast<double>(lane.served.ledger().copied - before.copied);
  stepping({});
  const bool others =
      std::any_of(lane.running.begin(), lane.running.end(), [&](const auto& j) { return j.get() != &job; });
  if (begun.status().code() == Code::kNoRoom && others) return false;
  if (!begun.is_ok()) job.decoding->fail(begun.status());
  job.begun = !begun.is_ok() || *begun;
  lane.idle = lane.idle && !job.begun;
  if (job.begun) job.prompt_begun = Clock::now();
  return true;
}

// What those that run would be fed next: answers, those first that were not fed for longest, and prompts.
bool Scheduler::ask(Lane& lane, std::vector<Picked>& answers, std::vector<Picked>& prompts) {
  for (const auto& job : lane.running) {
    if (job->decoding->ended() || !job->begun) continue;
    std::vector<Want> wants;
    const Status asked = or_thrown([&] {
      const Status done = job->decoding->wants(wants);
      for (const Want& w : wants) job->fed_in.resize(std::max(job->fed_in.size(), w.branch + 1));
      return done;
    });
    if (!asked.is_ok()) job->decoding->fail(asked);
    lane.idle = lane.idle && wants.empty() && asked.is_ok();
    if (!asked.is_ok()) continue;
    for (const Want& w : wants) (w.prompt ? prompts : answers).push_back({job.get(), w});
  }
  const auto last = [](const Picked& p) { return p.job->fed_in[p.want.branch]; };
  std::ranges::stable_sort(answers, {}, last);
  return !answers.empty() || !prompts.empty();
}

// The next piece of a prompt, of at most `rows` rows. False: none.
static bool cut(Want& want, int64_t rows) {
  const int64_t all = std::ssize(want.tokens);
  if (rows >= all) return true;
  const bool scored = want.wanted == all;
  const int64_t piece = std::min(rows, all - (scored ? 0 : want.wanted));
  if (piece <= 0) return false;
  want.tokens = want.tokens.first(static_cast<size_t>(piece));
  want.wanted = scored ? piece : 0;
  want.place = nullptr;
  return true;
}

// Pieces of prompts, as far as there is time. Where a graph takes one prompt at a time, it is fed by itself; where the
// cut matters, and where a prompt stays whole, the budget does not.
void Scheduler::pick_prompts(Lane& lane, std::vector<Picked>& prompts, int64_t answers,
                             const std::function<void(Picked, bool)>& add) {
  int64_t logits = answers;  // rows of them
  std::vector<Policy::Reading> shared, alone;
  std::vector<size_t> number_of_shared, number_of_alone;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const bool together = prompts[i].want.strand->served->together();
    (together ? shared : alone)
        .push_back({prompts[i].job->level, prompts[i].job->number, std::ssize(prompts[i].want.tokens)});
    (together ? number_of_shared : number_of_alone).push_back(i);
  }
  const std::vector<int64_t> rows =
      Policy::share(shared, lane.policy.prompt_rows(answers, lane.served.chunk(), budget_));
  // Texts that are scored share the rows of logits that others leave.
  const auto is_scored = [&](size_t i) { return prompts[number_of_shared[i]].want.wanted > 1; };
  int64_t scored = std::ranges::count_if(std::views::iota(size_t{0}, rows.size()), is_scored);
  for (const bool last : {false, true})
    for (size_t i = 0; i < rows.size(); ++i) {
      if (is_scored(i) != last) continue;
      Picked& p = prompts[number_of_shared[i]];
      const int64_t left = lane.served.rows() - logits, most = last ? (left + scored - 1) / scored : rows[i];
      scored -= last ? 1 : 0;
      if (!cut(p.want, std::min(rows[i], most))) continue;
      logits += p.want.wanted;
      add(std::move(p), false);
    }
  if (alone.empty()) return;
  Picked& p = prompts[number_of_alone[lane.policy.one_of(alone)]];
  const Served& served = *p.want.strand->served;
  const int64_t last = p.want.wanted > 0 ? 1 : 0, all = std::ssize(p.want.tokens);
  int64_t piece = served.in_place ? std::min(all - last, served.chunk()) : all - last;
  if (served.fixed_cuts()) piece = std::min(piece, served.chunk() - p.want.strand->length() % served.chunk());
  if (cut(p.want, piece + last < all ? piece : all)) add(std::move(p), true);
}

// Nobody moves the logits of one run that computes both.
static bool follows(const Want& first, const Want& second) {
  return first.place ? second.place == first.place + first.wanted * first.strand->served->vocabulary : !second.place;
}

// What the next step feeds, in groups that are a run of a program each: the tokens of all answers first, then pieces of
// prompts as far as there is room and time. Logits that have places are of a run of their own, which computes them
// there, as long as each place is behind the one before.
std::vector<std::vector<Scheduler::Picked>> Scheduler::pick(Lane& lane) {
  std::vector<Picked> answers, prompts;
  std::vector<std::vector<Picked>> groups;
  if (!ask(lane, answers, prompts)) return groups;
  std::map<std::pair<Served*, bool>, size_t> group_of;  // the last one of each engine, of logits with and without place
  int64_t answer_rows = 0;
  const auto add = [&](Picked p, bool alone) {
    Served& served = *p.want.strand->served;
    const std::pair key(&served, p.want.place != nullptr);
    const auto found = group_of.find(key);
    if (!alone && found != group_of.end() && follows(groups[found->second].back().want, p.want)) {
      std::vector<Picked>& group = groups[found->second];
      int64_t rows = p.want.wanted;
      for (const Picked& other : group) rows += other.want.wanted;
      if (rows > served.rows() || std::ssize(group) >= served.rows()) return;  // it is fed in the next step
      group.push_back(std::move(p));
      return;
    }
    if (!alone) group_of[key] = groups.size();
    groups.emplace_back().push_back(std::move(p));
  };
  for (Picked& p : answers) {
    answer_rows += std::ssize(p.want.tokens);
    add(std::move(p), !p.want.strand->sequence);
  }
  if (!prompts.empty()) pick_prompts(lane, prompts, answer_rows, add);
  ++lane.steps;
  return groups;
}

void Scheduler::stepping(std::vector<Job*> jobs) {
  const std::atomic<bool>* const flag = jobs.empty() ? nullptr : jobs[0]->flag();
  const bool of_all = std::all_of(jobs.begin(), jobs.end(), [&](const Job* j) { return j->flag() == flag; });
  pool_.interrupt_when(&abort_, of_all ? flag : nullptr);
  const std::lock_guard held(stepping_mutex_);
  stepping_ = std::move(jobs);
  abort_ = !stepping_.empty() &&
           std::all_of(stepping_.begin(), stepping_.end(), [](const Job* j) { return j->cancelled(); });
}

// One step; where a kernel cannot use a value in it, whosever it is, each alone, from where it was before.
void Scheduler::run(Lane& lane, std::vector<Picked>& group) {
  std::erase_if(group, [&](const Picked& p) {  // those that have ended, or given way, meanwhile
    return p.job->decoding->ended() ||
           std::none_of(lane.running.begin(), lane.running.end(), [&](const auto& j) { return j.get() == p.job; });
  });
  if (group.empty()) return;
  Served& served = *group[0].want.strand->served;
  std::vector<Job*> jobs;
  for (const Picked& p : group) jobs.push_back(p.job);
  stepping(std::move(jobs));
  parts_.reserve(group.size());  // nothing is allocated between a step and what takes its logits
  const Ledger before = served.ledger();
  const Clock::time_point start = Clock::now();
  int64_t prompt_rows = 0, answer_rows = 0;
  // Whoever is fed has its logits before anything may run out of memory for those that are refused.
  const auto take_or_refuse = [&](std::span<Picked> some) {
    take(some);
    for (Picked& p : some)
      if (!p.want.refused.is_ok() && p.want.refused.code() != Code::kNoRoom)
        p.job->decoding->refuse(p.want, std::move(p.want.refused));
  };
  const Status done = run_once(served, group);
  if (done.is_ok()) {
    take_or_refuse(group);
  } else if (done.code() != Code::kInterrupted) {
    for (Picked& p : group) {
      const Status alone = group.size() > 1 ? run_once(served, {&p, 1}) : done;
      if (alone.code() == Code::kInterrupted) break;
      if (!alone.is_ok()) p.job->decoding->fail(alone);
      take_or_refuse({&p, 1});
    }
  }
  stepping({});
  for (Picked& p : group) {
    if (!p.fed) continue;
    lane.fed = lane.steps;
    (p.want.prompt ? prompt_rows : answer_rows) += std::ssize(p.want.tokens);
    if (!p.want.prompt) p.job->fed_in[p.want.branch] = lane.steps;
  }
  const double ms = ms_since(start), all = std::max(1.0, static_cast<double>(prompt_rows + answer_rows));
  const Ledger after = served.ledger();
  for (const Picked& p : group) {
    if (!p.fed) continue;
    Figures& f = p.job->figures;
    Figures::Bytes& bytes = p.job->prompt_is_done ? f.decode : f.prompt;
    const double share = static_cast<double>(p.want.tokens.size()) / all;
    bytes.computed += share * static_cast<double>(after.computed - before.computed);
    bytes.copied += share * static_cast<double>(after.copied - before.copied);
  }
  if (&served == &lane.served && prompt_rows + answer_rows > 0) {
    ++lane.stats.steps;
    lane.stats.rows += prompt_rows + answer_rows;
    lane.policy.cost.learn(ms, answer_rows, prompt_rows);
  }
  if (prompt_rows > 0) {
    budget_.fed = true;
    budget_.spent_ms += std::max(0.0, ms - lane.policy.cost.answers_ms(answer_rows));
  }
  for (const Picked& p : group)
    if (p.want.refused.code() == Code::kNoRoom) return make_room(lane, p);
}

Status Scheduler::run_once(Served& served, std::span<Picked> group) {
  const Status done = or_thrown([&] {
    std::vector<Served::Feed*> feeds;
    for (Picked& p : group) feeds.push_back(&p.want);
    return served.step(feeds);
  });
  for (Picked& p : group) {
    if (!done.is_ok()) p.want.refused = Status::ok();
    p.fed = done.is_ok() && p.want.refused.is_ok();
  }
  return done;
}

// Each decoding takes its rows, those of several at the same time.
void Scheduler::take(std::span<Picked> group) {
  std::vector<size_t>& parts = parts_;
  first_picks(group, &parts);
  const auto take_part = [&](size_t first) {
    for (size_t i = first; i < group.size(); ++i) {
      if (group[i].job != group[first].job) continue;
      Decoding& decoding = *group[i].job->decoding;
      if (!group[i].fed || group[i].want.logits.empty() || decoding.ended()) continue;
      try {
        decoding.take(group[i].want, group[i].want.logits);
      } catch (...) {
        decoding.fail(thrown());
      }
    }
  };
  if (parts.size() == 1) return take_part(parts[0]);
  std::atomic<size_t> next{0};
  pool_.run([&](int, int) {
    for (size_t i = next.fetch_add(1); i < parts.size(); i = next.fetch_add(1)) take_part(parts[i]);
  });
}

// Whether it has sequences that share their beginning, of which one alone can go on where needs_one_run() is said.
static bool has_forks(const Job& job) {
  std::vector<const Strand*> strands;
  job.decoding->strands(strands);
  return strands.size() > 1;
}

// Somebody who runs gives way to those that were there before, or, alone, has come to the end of the state.
void Scheduler::make_room(Lane& lane, const Picked& refused) {
  Job& job = *refused.job;
  const Status& why = refused.want.refused;
  if (job.decoding->drop_guesses()) return;
  // Slots of those that have ended in this step come back before the next one.
  if (std::any_of(lane.running.begin(), lane.running.end(), [](const auto& j) { return j->decoding->ended(); })) return;
  std::vector<Policy::Running> running;
  for (const auto& j : lane.running) running.push_back({j->level, j->number, j->decoding->may_give_way()});
  const int64_t victim = lane.running.size() > 1 ? Policy::victim(running) : -1;
  // Where nobody may give way and nobody was fed for a whole step, nobody comes to an end either.
  const bool alone = lane.running.size() <= 1 || (victim < 0 && lane.steps > lane.fed + 1);
  if (is_needs_one_run(why) && (alone || has_forks(job)))  // no room would help
    return job.decoding->refuse(refused.want, why);
  const int64_t chosen = alone ? -1 : victim;
  if (chosen >= 0) {
    give_up(lane, static_cast<size_t>(chosen));
    ++lane.stats.preemptions;
  } else if (alone && job.decoding->take_turns()) {  // its first answer goes on, in the slots of the others
  } else if (alone && job.decoding->answers()) {
    job.decoding->end(FinishReason::kLength);
  } else if (alone) {
    const int64_t prompt = job.decoding->prompt_tokens();
    job.decoding->refuse(refused.want,
                         prompt > 0 ? why.with_context("the prompt of " + std::to_string(prompt) + " tokens") : why);
  }  // else those that run come to their end
}

// It begins again when there is room.
void Scheduler::give_up(Lane& lane, size_t running) {
  const std::shared_ptr<Job> job = lane.running[running];
  lane.waiting.push_back(job);
  lane.served.waiting.fetch_add(1);
  lane.running.erase(lane.running.begin() + static_cast<int64_t>(running));
  job->decoding->give_up_runs();
  job->preempted = true;
  job->begun = false;
}

}  // namespace situ
