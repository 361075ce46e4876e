// Beam search over log-probabilities: which beams go on with which token, and which answers they have found. It knows
// no model and no state: a beam that goes on is an index and a token.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "situ/generate.h"

namespace situ {

// Numbers are in the ranges that include/situ/generate.h gives.
struct BeamOptions {
  int64_t beams = 1;   // of all groups together, a multiple of groups
  int64_t groups = 1;  // each searches alone, but avoids tokens that earlier ones have chosen in the same step
  double diversity_penalty = 0;  // subtracted from a token's log-probability for each time
  // Of tokens that the beam's own sequence has, part of what offer() is told: transformers subtracts the one above
  // before it.
  double repetition_penalty = 1;
  double length_penalty =
      1;  // an answer's score is its log-probability / tokens^length_penalty, the end token included
  EarlyStopping early_stopping = EarlyStopping::kAttainable;
  double patience = 1;  // a group looks for so many answers as it has beams, times this
  int64_t max_new_tokens = 1;
  std::vector<int64_t> end_ids;
};

// Source: GenerationMixin._beam_search of transformers; groups: diverse beam search, Vijayakumar et al. 2016, with
// HammingDiversityLogitsProcessor's penalty.
class BeamSearch {
 public:
  struct Beam {
    int64_t parent = 0;  // index in running() before the last advance(); 0 before the first
    double log_probability = 0;
    std::vector<int64_t> ids;  // new tokens; the last one is still to be fed
  };
  struct Answer {
    std::vector<int64_t> ids;  // without the end token
    double score = 0, log_probability = 0;
    bool ended = false;  // by an end token, else by max_new_tokens
  };

  explicit BeamSearch(BeamOptions options);

  // What goes on, of all groups in order. At first one beam for each group, without tokens.
  const std::vector<Beam>& running() const { return running_; }
  // What the model says of the token after running()[beam]: log-probabilities [vocabulary]; -infinity is never chosen.
  // To be said of every beam before advance(). `repeated`: whether a token's is one that the repetition penalty has
  // changed.
  void offer(size_t beam, std::span<const float> log_probabilities,
             const std::function<bool(int64_t token)>& repeated = {});
  // Whether advance() would end the search without an answer: no beam was offered a token.
  bool at_a_loss() const;
  // Chooses the beams that go on. None left: the search is over.
  void advance();
  // The answers found, best first; at most beams x patience.
  std::vector<Answer> answers() const;
  // The same where the search ends early, with what the running beams have: at most as many more.
  std::vector<Answer> answers_so_far() const;

 private:
  struct Candidate {
    int64_t parent, token;
    double log_probability;
    bool repeated = false;
  };
  struct Group {
    std::vector<size_t> beams;    // indices in running_
    std::vector<Answer> answers;  // best first
  };
  int64_t group_size() const { return options_.beams / options_.groups; }
  int64_t answers_wanted() const;
  // Candidates that a group looks at: enough for its beams even where all the end tokens of half of them come first.
  size_t looked_at() const;
  std::vector<Candidate> best_candidates(const Group& group, const std::vector<int64_t>& avoided) const;
  double avoid(const Candidate& c, int64_t times) const;
  bool ends(int64_t token) const;
  void add_answer(Group& group, Answer answer) const;
  bool may_improve(const Group& group, double best) const;

  BeamOptions options_;
  int64_t length_ = 0;  // new tokens of every running beam
  std::vector<Beam> running_;
  std::vector<std::vector<Candidate>> offers_;  // by beam, best first
  std::vector<Group> groups_;
  std::vector<float> scratch_;
};

}  // namespace situ
