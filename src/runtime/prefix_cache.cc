#include "runtime/prefix_cache.h"

#include <algorithm>

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

PrefixCache::Node* PrefixCache::child_of(Node* node, int64_t token) const {
  const auto it = node->children.find(token);
  return it == node->children.end() ? nullptr : it->second.get();
}

Sequence PrefixCache::find(std::span<const int64_t> tokens, int64_t stage) {
  const bool ends_at_nodes = pool_.slot_bytes(SpaceKind::kWhole) > 0;
  std::vector<Run> runs, known;  // so far; up to a node whose whole states are known
  int64_t whole = -1;
  ++clock_;
  for (Node* node = &roots_[stage]; !tokens.empty();) {
    node = child_of(node, tokens[0]);
    if (!node) break;
    node->used = clock_;
    const size_t common = common_length(node->tokens, tokens);
    append_runs(runs, part_of(node->runs, 0, static_cast<int64_t>(common)));
    if (common < node->tokens.size()) break;
    if (node->whole >= 0) {
      known = runs;
      whole = node->whole;
    }
    tokens = tokens.subspan(common);
  }
  return Sequence(pool_, ends_at_nodes ? std::move(known) : std::move(runs), whole);
}

// The first `length` tokens of a node become a node of their own above it.
void PrefixCache::split(Node* node, size_t length) {
  auto upper = std::make_unique<Node>();
  const auto cut = node->tokens.begin() + static_cast<std::ptrdiff_t>(length);
  upper->tokens.assign(node->tokens.begin(), cut);
  upper->runs = part_of(node->runs, 0, static_cast<int64_t>(length));
  upper->parent = node->parent;
  upper->used = node->used;
  std::unique_ptr<Node>& place = node->parent->children[node->tokens[0]];
  node->runs = part_of(node->runs, static_cast<int64_t>(length), static_cast<int64_t>(node->tokens.size()));
  node->tokens.erase(node->tokens.begin(), cut);
  node->parent = upper.get();
  upper->children[node->tokens[0]] = std::move(place);
  place = std::move(upper);
}

void PrefixCache::keep(std::span<const int64_t> tokens, const Sequence& sequence, int64_t stage) {
  if (sequence.kept() != sequence.length()) return;
  Node* const root = &roots_[stage];
  ++clock_;
  for (const Sequence::Whole& known : sequence.whole_states()) {
    Node* const node = grow(root, tokens.first(static_cast<size_t>(known.length)), sequence);
    if (node->whole >= 0) continue;
    node->whole = known.slot;
    pool_.space(SpaceKind::kWhole).add_reference({known.slot, 1});
  }
  grow(root, tokens, sequence);
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
      leaf->used = clock_;
      Node& kept = *(node->children[rest[0]] = std::move(leaf));
      for (const Run& r : kept.runs) pool_.space(SpaceKind::kAppend).add_reference(r);
      tokens_ += end - at;
      return &kept;
    }
    const size_t common = common_length(child->tokens, rest);
    if (common < child->tokens.size()) {
      split(child, common);
      child = child->parent;
    }
    child->used = clock_;
    at += static_cast<int64_t>(common);
    node = child;
  }
  return node;
}

bool PrefixCache::drop_oldest() {
  Node* oldest = nullptr;
  std::vector<Node*> open;
  for (auto& [stage, root] : roots_) open.push_back(&root);
  while (!open.empty()) {
    Node* node = open.back();
    open.pop_back();
    for (const auto& [token, child] : node->children) open.push_back(child.get());
    if (node->parent && node->children.empty() && (!oldest || node->used < oldest->used)) oldest = node;
  }
  if (!oldest) return false;
  for (const Run& r : oldest->runs) pool_.space(SpaceKind::kAppend).release(r);
  if (oldest->whole >= 0) pool_.space(SpaceKind::kWhole).release({oldest->whole, 1});
  tokens_ -= static_cast<int64_t>(oldest->tokens.size());
  oldest->parent->children.erase(oldest->tokens[0]);
  return true;
}

}  // namespace situ
