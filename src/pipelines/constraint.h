// What may come next in one answer, by its grammar: found on a thread of its own while the step runs.
#pragma once

#include <optional>
#include <span>

#include "base/side_thread.h"
#include "situ/generate.h"
#include "text/grammar.h"

namespace situ {

class Constraint {
 public:
  explicit Constraint(Grammar grammar) : grammar_(std::move(grammar)) { look_ahead(std::nullopt); }

  struct Next {
    std::span<const uint32_t> allowed;  // bit (id % 32) of word id / 32; the ids that end an answer are not in it
    bool may_end = false;               // the text so far is whole
    bool must_end = false;              // and nothing can follow it
  };
  // Waits until it is known. Error: the grammar takes too many steps here; no token goes on with it.
  Result<Next> next();
  // The answer goes on with this token, which is allowed.
  void append(int64_t id) { look_ahead(id); }

 private:
  void look_ahead(std::optional<int64_t> token);

  Grammar grammar_;
  Next next_;
  Status status_ = Status::ok();
  SideThread thread_;  // last: it is at the members above
};

// The grammar that the options ask for, or none. Errors name the option and what is wrong.
Result<std::optional<Grammar>> compile_constraint(const GenerateOptions& options, const Tokenizer* tokenizer,
                                                  int64_t vocabulary);

}  // namespace situ
