// Prompts that begin alike share the slots of their beginning: radix trees of tokens whose edges hold runs of slots,
// and whose nodes hold a slot of the whole space where the states behind their tokens are known. Finding, keeping and
// dropping are index work; no state byte moves.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/space.h"

namespace situ {

// Rows of one tree may be shared: those of sequences of one stage (runtime/switches.h); those that were all computed as
// rows of prompts, which have other last bits than rows of answers, or of any kind; and those of requests with one
// salt, so that nobody learns by the time of an answer what others have asked.
struct PrefixTree {
  int64_t stage = 0;
  bool answers = false;
  std::string salt = {};
  auto operator<=>(const PrefixTree&) const = default;
};

// One thread at a time. `pool` must outlive the cache. Where memory runs out (std::bad_alloc) it is what it was, or
// keeps a beginning of what it was to keep.
class PrefixCache {
 public:
  // At most a quarter of the slots is kept, and `most` of them; and, of these, no more than `plenty`, or the slots of
  // kSequences sequences as long as the longest so far: prompts that never come again take no more and more memory.
  static constexpr int64_t kSequences = 4;
  explicit PrefixCache(StatePool& pool, int64_t most = INT64_MAX, int64_t plenty = INT64_MAX)
      : pool_(pool), most_(std::min(most, pool.capacity() / 4)), plenty_(plenty) {}
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  using Tree = PrefixTree;
  // A sequence of the longest beginning of `tokens` that is kept; empty: none is. Where there are whole states, one
  // that ends where they are known.
  Sequence find(std::span<const int64_t> tokens, const Tree& tree = {});
  // Keeps the slots of the tokens that `sequence` begins with, the first of them where they are more than may be kept
  // beside others, which have up to half of it (for a beginning that was found itself: others that were, too), as far
  // as others do not stand for the same tokens already; none of one that a window has dropped tokens of. Of whole
  // states those that the sequence still knows after a multiple of `every` tokens. Where more would be kept than may,
  // the ends of what was used longest ago go; not of what was found again, unless that is more than its half.
  void keep(std::span<const int64_t> tokens, const Sequence& sequence, const Tree& tree = {}, int64_t every = 1);
  // Gives up the end of the beginning that was used longest ago. Its slots are free once no sequence holds them. False:
  // nothing is kept. Allocates nothing.
  bool drop_oldest() { return cut(oldest_, INT64_MAX); }
  // Frees slots that no sequence holds, `wanted` at most: of the end of what was used longest ago, and found again last
  // of all. False: there are none. Allocates nothing.
  bool evict(int64_t wanted);
  // Slots that evict() would free.
  int64_t evictable() const;
  int64_t slots() const { return slots_; }  // that are kept, be it in several trees

 private:
  struct Node {
    std::vector<int64_t> tokens;                        // on the way here from the parent
    std::vector<Run> runs;                              // of these tokens
    std::map<int64_t, std::unique_ptr<Node>> children;  // by their first token
    Node* parent = nullptr;                             // null: a root
    Node *older = nullptr, *newer = nullptr;            // of all nodes, by their last use
    int64_t whole = -1;  // slot of the whole states after these tokens; -1: they are not known
    bool again = false;  // was found
  };
  static Node* child_of(Node* node, int64_t token);
  void hold(const std::vector<Run>& runs);
  void let_go(const Run& run);
  bool cut(Node* leaf, int64_t count);
  bool is_held(int64_t slot) const;
  int64_t evictable(const Node& leaf) const;
  void split(Node* node, size_t length);
  Node* grow(Node* root, std::span<const int64_t> tokens, const Sequence& sequence);
  void use(Node* node);
  Node* give_up() const;
  void put_newest(Node* node);
  void put_after(Node* node, Node* older);
  void take_out(Node* node);

  int64_t most() const { return std::min(most_, std::max(plenty_, kSequences * longest_)); }

  StatePool& pool_;
  const int64_t most_, plenty_;
  int64_t longest_ = 0;  // tokens of a sequence that was to be kept
  std::map<Tree, Node> roots_;
  // A child is always older than its parent, so that the oldest of all is a leaf.
  Node *oldest_ = nullptr, *newest_ = nullptr;
  std::vector<uint16_t> nodes_of_;  // by slot, as far as any was kept: how many nodes have it
  int64_t slots_ = 0;               // that a node has
  int64_t found_ = 0;               // tokens of nodes that were found
};

}  // namespace situ
