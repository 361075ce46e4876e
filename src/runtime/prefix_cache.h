// Prompts that begin alike share the slots of their beginning: a radix tree of tokens whose edges hold runs of slots,
// and whose nodes hold a slot of the whole space where the states behind their tokens are known. Finding, keeping and
// dropping are index work; no state byte moves.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "runtime/space.h"

namespace situ {

// One thread at a time. `pool` must outlive the cache.
class PrefixCache {
 public:
  explicit PrefixCache(StatePool& pool) : pool_(pool) {}
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // A sequence of the longest beginning of `tokens` that is kept; empty: none is. Where there are whole states, one
  // that ends where they are known. `stage`: of the sequences whose rows may be shared (runtime/switches.h).
  Sequence find(std::span<const int64_t> tokens, int64_t stage = 0);
  // Keeps the slots of `sequence`, which holds `tokens`, as far as others do not stand for the same tokens already;
  // none of one that a window has dropped tokens of. Of whole states those that the sequence still knows. Precondition:
  // tokens.size() == sequence.length().
  void keep(std::span<const int64_t> tokens, const Sequence& sequence, int64_t stage = 0);
  // Gives up the end of the beginning that was used longest ago. Its slots are free once no sequence holds them. False:
  // nothing is kept.
  bool drop_oldest();
  int64_t tokens() const { return tokens_; }  // that are kept

 private:
  struct Node {
    std::vector<int64_t> tokens;                        // on the way here from the parent
    std::vector<Run> runs;                              // of these tokens
    std::map<int64_t, std::unique_ptr<Node>> children;  // by their first token
    Node* parent = nullptr;
    uint64_t used = 0;
    int64_t whole = -1;  // slot of the whole states after these tokens; -1: they are not known
  };
  Node* child_of(Node* node, int64_t token) const;
  void split(Node* node, size_t length);
  Node* grow(Node* root, std::span<const int64_t> tokens, const Sequence& sequence);

  StatePool& pool_;
  std::map<int64_t, Node> roots_;  // by stage
  uint64_t clock_ = 0;
  int64_t tokens_ = 0;
};

}  // namespace situ
