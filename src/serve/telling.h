// From what the scheduler tells of requests to the events of their answer.
#pragma once

#include <map>
#include <vector>

#include "serve/ask.h"
#include "serve/out.h"

namespace situ::serve {

class Telling {
 public:
  // `in_pieces`: tokens are told as they come; else all is told when a request has ended. `ask`, whose prompts are
  // known, must outlive it.
  Telling(const Ask& ask, bool in_pieces);

  // Before the first token of a request.
  void begin(size_t request, std::vector<Out>& outs) const;
  void event(size_t request, const Event& event, std::vector<Out>& outs);
  // The rest of a request that has not failed, and its ends.
  void end(size_t request, const Generation& generation, std::vector<Out>& outs);
  // Behind all of them.
  Finished finished() const { return {usage_, std::nullopt}; }

 private:
  void tell(size_t choice, const Event& said, std::vector<Out>& outs);
  void tell_whole(size_t choice, const Generation::Answer& answer, std::vector<Out>& outs);
  std::vector<Told> told_of_prompt(size_t request, const Generation& generation) const;
  const Ask& ask_;
  const bool at_once_;
  std::map<size_t, std::vector<Told>> held_;  // by choice: tokens that have said nothing so far
  Usage usage_;
};

}  // namespace situ::serve
