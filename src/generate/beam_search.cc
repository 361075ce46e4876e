#include "generate/beam_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "generate/selection.h"

namespace situ {

BeamSearch::BeamSearch(BeamOptions options)
    : options_(std::move(options)),
      running_(static_cast<size_t>(options_.groups)),
      offers_(running_.size()),
      groups_(running_.size()) {
  for (size_t g = 0; g < groups_.size(); ++g) groups_[g].beams = {g};
}

bool BeamSearch::ends(int64_t token) const {
  return std::find(options_.end_ids.begin(), options_.end_ids.end(), token) != options_.end_ids.end();
}

int64_t BeamSearch::answers_wanted() const {
  return std::max<int64_t>(1, std::llround(static_cast<double>(group_size()) * options_.patience));
}

size_t BeamSearch::looked_at() const {
  return std::max<size_t>(2, 1 + options_.end_ids.size()) * static_cast<size_t>(group_size());
}

void BeamSearch::offer(size_t beam, std::span<const float> log_probabilities,
                       const std::function<bool(int64_t)>& repeated) {
  std::vector<Candidate>& found = offers_[beam];
  found.clear();
  // A penalty moves at most one token for each beam of the groups before.
  const size_t count =
      std::min(looked_at() + static_cast<size_t>(options_.groups > 1 ? options_.beams : 0), log_probabilities.size());
  const float least = std::max(kth_largest(log_probabilities, count, scratch_), std::numeric_limits<float>::lowest());
  each_wanted(
      log_probabilities, [&](float x) { return x >= least; },
      [&](size_t i) {
        found.push_back(
            {static_cast<int64_t>(beam), static_cast<int64_t>(i), static_cast<double>(log_probabilities[i])});
      });
  std::stable_sort(found.begin(), found.end(),
                   [](const Candidate& a, const Candidate& b) { return a.log_probability > b.log_probability; });
  if (found.size() > count) found.resize(count);
  for (Candidate& c : found) c.repeated = repeated && repeated(c.token);
}

// The log-probability of a token that groups before have chosen so often.
double BeamSearch::avoid(const Candidate& c, int64_t times) const {
  const double less = options_.diversity_penalty * static_cast<double>(times), r = options_.repetition_penalty;
  if (less == 0 || !c.repeated) return c.log_probability - less;
  const double before = (c.log_probability < 0 ? c.log_probability / r : c.log_probability * r) - less;
  return before < 0 ? before * r : before / r;
}

std::vector<BeamSearch::Candidate> BeamSearch::best_candidates(const Group& group,
                                                               const std::vector<int64_t>& avoided) const {
  std::vector<Candidate> found;
  for (const size_t beam : group.beams) {
    for (Candidate c : offers_[beam]) {
      c.log_probability =
          running_[beam].log_probability + avoid(c, std::count(avoided.begin(), avoided.end(), c.token));
      found.push_back(c);
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Candidate& a, const Candidate& b) { return a.log_probability > b.log_probability; });
  if (found.size() > looked_at()) found.resize(looked_at());
  return found;
}

void BeamSearch::add_answer(Group& group, Answer answer) const {
  const auto at =
      std::find_if(group.answers.begin(), group.answers.end(), [&](const Answer& a) { return a.score < answer.score; });
  group.answers.insert(at, std::move(answer));
  if (static_cast<int64_t>(group.answers.size()) > answers_wanted()) group.answers.pop_back();
}

// `best`: the log-probability of the best beam that could go on.
bool BeamSearch::may_improve(const Group& group, double best) const {
  if (static_cast<int64_t>(group.answers.size()) < answers_wanted()) return true;
  if (options_.early_stopping == EarlyStopping::kFirst) return false;
  const bool longest = options_.early_stopping == EarlyStopping::kNever && options_.length_penalty > 0;
  const int64_t length = longest ? options_.max_new_tokens : length_;
  return best / std::pow(static_cast<double>(length), options_.length_penalty) > group.answers.back().score;
}

void BeamSearch::advance() {
  ++length_;
  const bool last = length_ >= options_.max_new_tokens;
  const double divisor = std::pow(static_cast<double>(length_), options_.length_penalty);
  std::vector<Beam> next;
  std::vector<int64_t> chosen;  // by the groups so far
  for (Group& group : groups_) {
    const std::vector<Candidate> candidates = best_candidates(group, chosen);
    std::vector<size_t> beams;
    std::vector<int64_t> tokens;
    for (size_t i = 0; i < candidates.size(); ++i) {
      const Candidate& c = candidates[i];
      const bool end = ends(c.token), among_best = static_cast<int64_t>(i) < group_size();
      std::vector<int64_t> ids = running_[static_cast<size_t>(c.parent)].ids;
      if (!end) ids.push_back(c.token);
      if (!end && static_cast<int64_t>(tokens.size()) < group_size()) tokens.push_back(c.token);
      if (end || last) {
        // An end that is not among the best is no answer: as many others would be better if they ended here.
        if (among_best) add_answer(group, {std::move(ids), c.log_probability / divisor, c.log_probability, end});
        continue;
      }
      if (static_cast<int64_t>(beams.size()) == group_size()) continue;
      beams.push_back(next.size());
      next.push_back({c.parent, c.log_probability, std::move(ids)});
    }
    if (!beams.empty() && !may_improve(group, next[beams[0]].log_probability)) {
      next.resize(beams[0]);
      beams.clear();
    }
    chosen.insert(chosen.end(), tokens.begin(), tokens.end());
    group.beams = std::move(beams);
  }
  running_ = std::move(next);
  offers_.assign(running_.size(), {});
}

bool BeamSearch::at_a_loss() const {
  return std::all_of(offers_.begin(), offers_.end(), [](const auto& offered) { return offered.empty(); }) &&
         std::all_of(groups_.begin(), groups_.end(), [](const Group& group) { return group.answers.empty(); });
}

static void best_first(std::vector<BeamSearch::Answer>& answers) {
  std::stable_sort(answers.begin(), answers.end(), [](const auto& a, const auto& b) { return a.score > b.score; });
}

std::vector<BeamSearch::Answer> BeamSearch::answers() const {
  std::vector<Answer> found;
  for (const Group& group : groups_) found.insert(found.end(), group.answers.begin(), group.answers.end());
  best_first(found);
  return found;
}

std::vector<BeamSearch::Answer> BeamSearch::answers_so_far() const {
  std::vector<Answer> found = answers();
  const double divisor = std::pow(static_cast<double>(length_), options_.length_penalty);
  if (length_ > 0)
    for (const Beam& b : running_) found.push_back({b.ids, b.log_probability / divisor, b.log_probability, false});
  best_first(found);
  return found;
}

}  // namespace situ
