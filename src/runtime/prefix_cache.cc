#include "runtime/prefix_cache.h"

#include <algorithm>
#include <utility>

namespace situ {
namespace {

// The runs of tokens [from, to) of a sequence.
std::vector<Run> part_of(const std::vector<Run>& runs, int64_t from, int64_t to) {
  std::vector<Run> part;
  int64_t begin = 0;
  for (const Run& r : runs) {
    const int64_t first = std::max(from, begin), last = std::min(to, begin + r.length);
    if (first < last) part.push_back({r.first_slot + first - begin, last - first});
    begin += r.length;
  }
  return part;
}

size_t common_length(std::span<const int64_t> a, std::span<const int64_t> b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

// Neighbours become one run, as a sequence has them.
void append_runs(std::vector<Run>& to, const std::vector<Run>& runs) {
  for (const Run& r : runs)
    if (!to.empty() && to.back().first_slot + to.back().length == r.first_slot)
      to.back().length += r.length;
    else
      to.push_back(r);
}

}  // namespace

PrefixCache::~PrefixCache() {
  while (drop_oldest()) {
  }
}

PrefixCache::Node* PrefixCache::child_of(Node* node, int64_t token) {
  const auto it = node->children.find(token);
  return it == node->children.end() ? nullptr : it->second.get();
}

void PrefixCache::put_after(Node* node, Node* older) {
  node->older = older;
  node->newer = older ? older->newer : oldest_;
  (node->older ? node->older->newer : oldest_) = node;
  (node->newer ? node->newer->older : newest_) = node;
}

void PrefixCache::put_newest(Node* node) { put_after(node, newest_); }

void PrefixCache::take_out(Node* node) {
  (node->older ? node->older->newer : oldest_) = node->newer;
  (node->newer ? node->newer->older : newest_) = node->older;
}

void PrefixCache::use(Node* node) {
  for (; node->parent; node = node->parent) {
    take_out(node);
    put_newest(node);
  }
}

Sequence PrefixCache::find(std::span<const int64_t> tokens, const Tree& tree) {
  const bool ends_at_nodes = pool_.slot_bytes(SpaceKind::kWhole) > 0;
  std::vector<Run> runs, known;  // so far; up to a node whose whole states are known
  int64_t whole = -1;
  const auto root = roots_.find(tree);
  Node* last = root == roots_.end() ? nullptr : &root->second;
  for (Node* node = last; node && !tokens.empty();) {
    node = child_of(node, tokens[0]);
    if (!node) break;
    last = node;
    const size_t common = common_length(node->tokens, tokens);
    append_runs(runs, part_of(node->runs, 0, static_cast<int64_t>(common)));
    if (!std::exchange(node->again, true)) found_ += std::ssize(node->tokens);
    if (common < node->tokens.size()) break;
    if (node->whole >= 0) {
      known = runs;
      whole = node->whole;
    }
    tokens = tokens.subspan(common);
  }
  if (last) use(last);
  return Sequence(pool_, ends_at_nodes ? std::move(known) : std::move(runs), whole);
}

// The first `length` tokens of a node become a node of their own above it. All memory is there before anything changes.
void PrefixCache::split(Node* node, size_t length) {
  const auto cut = node->tokens.begin() + static_cast<std::ptrdiff_t>(length);
  auto upper = std::make_unique<Node>();
  upper->tokens.assign(node->tokens.begin(), cut);
  upper->runs = part_of(node->runs, 0, static_cast<int64_t>(length));
  std::vector<Run> runs = part_of(node->runs, static_cast<int64_t>(length), static_cast<int64_t>(node->tokens.size()));
  std::vector<int64_t> tokens(cut, node->tokens.end());
  std::unique_ptr<Node>& below = upper->children[tokens[0]];
  std::unique_ptr<Node>& place = node->parent->children.find(node->tokens[0])->second;
  upper->parent = node->parent;
  upper->again = std::exchange(node->again, false);  // its end was not found
  if (upper->again) found_ -= std::ssize(tokens);
  put_after(upper.get(), node);
  node->runs = std::move(runs);
  node->tokens = std::move(tokens);
  node->parent = upper.get();
  below = std::move(place);
  place = std::move(upper);
}

void PrefixCache::keep(std::span<const int64_t> tokens, const Sequence& sequence, const Tree& tree, int64_t every) {
  if (sequence.kept() != sequence.length()) return;
  std::erase_if(roots_, [](const auto& r) { return r.second.children.empty(); });
  Node* const root = &roots_[tree];
  int64_t own = 0;
  for (Node* node = root; own < std::ssize(tokens); own += std::ssize(node->tokens))
    if (node = child_of(node, tokens[static_cast<size_t>(own)]); !node || !node->again) break;
  const bool again = own >= most_ / 4;  // else all others are as likely to come again
  const int64_t others = std::clamp<int64_t>((again ? found_ : slots_) - own, 0, most_ / 2);
  tokens = tokens.first(static_cast<size_t>(std::min(std::ssize(tokens), most_ - others)));
  for (const Sequence::Whole& known : sequence.whole_states()) {
    if (known.length > static_cast<int64_t>(tokens.size()) || known.length % every != 0) continue;
    Node* const node = grow(root, tokens.first(static_cast<size_t>(known.length)), sequence);
    if (node->whole >= 0 || !node->parent) continue;
    node->whole = known.slot;
    pool_.space(SpaceKind::kWhole).add_reference({known.slot, 1});
  }
  if (pool_.slot_bytes(SpaceKind::kWhole) == 0) grow(root, tokens, sequence);
  longest_ = std::max(longest_, std::ssize(tokens));
  while (slots_ > most()) cut(give_up(), slots_ - most());
}

// The leaf whose end goes next.
PrefixCache::Node* PrefixCache::give_up() const {
  if (found_ > most_ / 2) return oldest_;
  for (Node* node = oldest_; node; node = node->newer)
    if (!node->again && node->children.empty()) return node;
  return oldest_;
}

// Precondition: nodes_of_ is large enough.
void PrefixCache::hold(const std::vector<Run>& runs) {
  for (const Run& r : runs) {
    pool_.space(SpaceKind::kAppend).add_reference(r);
    for (int64_t s = r.first_slot; s < r.first_slot + r.length; ++s)
      if (nodes_of_[static_cast<size_t>(s)]++ == 0) ++slots_;
  }
}

// The node below `root` where `tokens`, which `sequence` begins with, end.
PrefixCache::Node* PrefixCache::grow(Node* root, std::span<const int64_t> tokens, const Sequence& sequence) {
  Node* node = root;
  int64_t at = 0;
  for (const int64_t end = static_cast<int64_t>(tokens.size()); at < end;) {
    const std::span<const int64_t> rest = tokens.subspan(static_cast<size_t>(at));
    Node* child = child_of(node, rest[0]);
    if (!child) {
      auto leaf = std::make_unique<Node>();
      leaf->tokens.assign(rest.begin(), rest.end());
      leaf->runs = part_of(sequence.runs(), at, end);
      leaf->parent = node;
      for (const Run& r : leaf->runs)
        nodes_of_.resize(std::max(nodes_of_.size(), static_cast<size_t>(r.first_slot + r.length)));
      Node& kept = *node->children.emplace(rest[0], std::move(leaf)).first->second;
      hold(kept.runs);
      put_newest(&kept);
      use(&kept);
      return &kept;
    }
    const size_t common = common_length(child->tokens, rest);
    if (common < child->tokens.size()) {
      split(child, common);
      child = child->parent;
    }
    at += static_cast<int64_t>(common);
    node = child;
  }
  use(node);
  return node;
}

void PrefixCache::let_go(const Run& run) {
  pool_.space(SpaceKind::kAppend).release(run);
  for (int64_t s = run.first_slot; s < run.first_slot + run.length; ++s)
    if (--nodes_of_[static_cast<size_t>(s)] == 0) --slots_;
}

// Gives up the last `count` tokens of a leaf; all of one behind which whole states are known. False: there is no leaf.
bool PrefixCache::cut(Node* leaf, int64_t count) {
  if (!leaf) return false;
  const bool all = leaf->whole >= 0 || count >= std::ssize(leaf->tokens);
  if (all) count = std::ssize(leaf->tokens);
  if (leaf->again) found_ -= count;
  for (int64_t left = count; left > 0;) {
    Run& last = leaf->runs.back();
    const int64_t length = std::min(left, last.length);
    last.length -= length;
    left -= length;
    let_go({last.first_slot + last.length, length});
    if (last.length == 0) leaf->runs.pop_back();
  }
  if (!all) {
    leaf->tokens.resize(leaf->tokens.size() - static_cast<size_t>(count));
    return true;
  }
  if (leaf->whole >= 0) pool_.space(SpaceKind::kWhole).release({leaf->whole, 1});
  take_out(leaf);
  leaf->parent->children.erase(leaf->parent->children.find(leaf->tokens[0]));
  return true;
}

// Whether a sequence has the slot, beside nodes.
bool PrefixCache::is_held(int64_t slot) const {
  return pool_.space(SpaceKind::kAppend).references(slot) > nodes_of_[static_cast<size_t>(slot)];
}

// At its end: a sequence that has a token has those before it.
int64_t PrefixCache::evictable(const Node& leaf) const {
  int64_t count = 0;
  for (auto run = leaf.runs.rbegin(); run != leaf.runs.rend(); ++run)
    for (int64_t s = run->first_slot + run->length; s-- > run->first_slot; ++count)
      if (is_held(s)) return count;
  return count;
}

bool PrefixCache::evict(int64_t wanted) {
  for (const bool again : {false, true})
    for (Node* node = oldest_; node; node = node->newer) {
      if (!node->children.empty() || node->again != again) continue;
      const int64_t free = evictable(*node);
      const bool state = node->whole >= 0 && !pool_.space(SpaceKind::kWhole).shared(node->whole);
      if (free > 0 || state) return cut(node, std::min(free, wanted));
    }
  return false;
}

int64_t PrefixCache::evictable() const {
  int64_t count = 0;
  for (size_t s = 0; s < nodes_of_.size(); ++s)
    if (nodes_of_[s] > 0 && !is_held(static_cast<int64_t>(s))) ++count;
  return count;
}

}  // namespace situ
