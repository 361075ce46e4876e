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
  void token(size_t request, const Event& token, std::vector<Out>& outs);
  // The rest of a request that has not failed, and its ends.
  void end(size_t request, const Generation& generation, std::vector<Out>& outs);
  // Behind all of them.
  Finished finished() const { return {usage_, std::nullopt}; }

 private:
  // The text of a choice that has marks, and tokens that belong to what they will say.
  struct Reading {
    AnswerReader reader;
    std::vector<Told> held = {};
  };
  Reading& reading_of(size_t choice);
  static void tell(size_t choice, std::vector<DialogEvent> events, std::vector<Told>& held, std::vector<Out>& outs);
  // They return why the choice has ended: see end_of().
  FinishReason tell_whole(size_t choice, const std::string& text, FinishReason reason, std::vector<Told> tokens,
                          std::vector<Out>& outs) const;
  FinishReason tell_rest(size_t choice, FinishReason reason, std::vector<Out>& outs);
  std::vector<Told> told_of_prompt(size_t request, const Generation& generation) const;
  const Ask& ask_;
  const bool in_pieces_, at_once_;
  std::map<size_t, Reading> readings_;  // by choice
  Usage usage_;
};

}  // namespace situ::serve
