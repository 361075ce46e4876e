// Caches of a fixed size, into which a step writes the rows of its tokens at their positions, become states that these
// rows are appended to:
//
//   past [.., N, ..], present = update(past, rows)  ->  past [.., P, ..], present = Concat(past, rows) [.., P + S, ..]
//
// What reads the N places has P + S of them then: a mask of N columns its first P + S, a Reshape to N rows one to P +
// S. That is the same where attention hides every place that no token was written to, which is seen by what its masks
// are at all steps of a short cache, at some of a long one, and beside the numbers that positions are compared with. A
// cache that is written in a circle holds the last N tokens: attention sees the last ones of the sequence, by a mask of
// its own. passes/states/cache_update.h tells such caches.
//
// Not lifted, with the reason in `inspect`: where something else than attention reads the places, or sees those without
// a token. Such a cache is replaced as a whole by each step; one that is a circle is refused.
#include <algorithm>
#include <map>
#include <set>

#include "passes/context/builder.h"
#include "passes/context/node_key.h"
#include "passes/context/pass_context.h"
#include "passes/host/infer.h"
#include "passes/host/mask.h"
#include "passes/host/room.h"
#include "passes/host/turning_points.h"
#include "passes/module/module.h"
#include "passes/states/cache_append.h"
#include "passes/states/cache_update.h"
#include "passes/states/passes.h"

namespace situ {
namespace {

constexpr int kMostScoreNodes = 64;
constexpr int64_t kFewPlaces = 256;                             // caches of which every length is looked at
constexpr int64_t kManyElements = 1 << 28, kSomeLengths = 512;  // of all masks; of those of longer ones
constexpr int64_t kMostCacheElements = 1 << 20;  // of a mask beside a number that positions are compared with

class CacheLifter {
 public:
  explicit CacheLifter(PassContext& context)
      : context_(context), graph_(context.graph), prober_(graph_, context.binding, context.evaluator) {}

  Status run() {
    find_caches();
    SITU_RETURN_IF_ERROR(check_told());
    if (caches_.empty()) return Status::ok();
    if (context_.literal) {
      for (const CacheUpdate& c : caches_)
        if (c.circle) context_.binding.circle = smaller(context_.binding.circle, c.places);
      return Status::ok();
    }
    Status planned = plan();
    if (!planned.is_ok() && leave_rolling(planned)) {
      if (caches_.empty()) return Status::ok();
      planned = plan();
    }
    if (!planned.is_ok()) return keep(planned);
    SITU_RETURN_IF_ERROR(check_length());
    Graph before = graph_;
    Status lifted = apply();
    if (lifted.is_ok()) lifted = infer_shapes(context_);
    if (lifted.is_ok()) {
      for (const CacheUpdate& c : caches_)
        context_.note("static cache", graph_.values[c.past].name,
                      std::to_string(c.places) +
                          (c.rolls    ? " places that move on"
                           : c.circle ? " places in a circle"
                                      : " places") +
                          " -> a row is appended for each token");
      return lifted;
    }
    graph_ = std::move(before);
    return keep(lifted);
  }

 private:
  const Shape& shape(ValueId v) const { return graph_.values[v].info.shape; }
  static int64_t smaller(int64_t a, int64_t b) { return a == 0 ? b : std::min(a, b); }
  Dim tokens() const { return context_.phase == Phase::kDecode ? Dim(1) : Dim::symbol(kSymS); }
  Dim past() const { return context_.phase == Phase::kFirst ? Dim(0) : Dim::symbol(kSymP); }
  Dim length() const { return past() + tokens(); }

  void find_caches() {
    CacheUpdates updates(context_);
    std::set<ValueId> taken;
    for (const auto& [v, role] : context_.binding.inputs) {
      if (role != InputRole::kState) continue;
      const std::string suffix = state_suffix(graph_.values[v].name);
      std::vector<ValueId> outputs;  // namesakes first
      for (const bool namesake : {true, false})
        for (const ValueId out : graph_.outputs)
          if ((!suffix.empty() && state_suffix(graph_.values[out].name) == suffix) == namesake) outputs.push_back(out);
      for (const ValueId out : outputs) {
        if (out == context_.binding.logits || taken.count(out)) continue;
        const std::optional<CacheUpdate> found = updates.find(v, out);
        if (!found) continue;
        taken.insert(out);
        caches_.push_back(*found);
        break;
      }
    }
  }

  // Inputs whose meaning their readers told: it is right if the rows go where their tokens stand.
  Status check_told() const {
    for (const ValueId told : context_.told_by_use) {
      std::set<ValueId> made{told};
      for (const Node& n : graph_.nodes)
        if (std::any_of(n.in.begin(), n.in.end(), [&](ValueId v) { return made.count(v) != 0; }))
          made.insert(n.out.begin(), n.out.end());
      const bool right = std::any_of(caches_.begin(), caches_.end(), [&](const CacheUpdate& c) {
        return std::any_of(c.positions.begin(), c.positions.end(), [&](ValueId v) { return made.count(v) != 0; });
      });
      if (!right)
        return Status::error("input '" + graph_.values[told].name +
                             "' has no known meaning: by it the graph does not write the rows of a step at the "
                             "positions of their tokens");
    }
    return Status::ok();
  }

  // Those that move on and are not only attended to are replaced, whatever becomes of others; false: there are none.
  bool leave_rolling(const Status& why) {
    const size_t left = std::erase_if(caches_, [&](const CacheUpdate& c) {
      if (c.rolls) context_.note("static cache", graph_.values[c.past].name, "replaced by each step: " + why.message());
      return c.rolls;
    });
    places_.clear();
    updates_.clear();
    inside_.clear();
    fixed_.clear();
    edits_.clear();
    attentions_.clear();
    masks_.clear();
    seen_.clear();
    return left > 0;
  }
  Status keep(const Status& why) {
    for (const CacheUpdate& c : caches_) {
      const std::string& name = graph_.values[c.past].name;
      if (c.circle && !c.rolls)
        return Status::error("state '" + name + "' " + shape_str(shape(c.past)) +
                             " is written in a circle, and its rows cannot be appended: " + why.message());
      context_.note("static cache", name, "replaced by each step: " + why.message());
    }
    return Status::ok();
  }

  // As many tokens as the smallest cache has places.
  Status check_length() {
    int64_t most = context_.length;
    std::optional<Status> wrong;
    for (const CacheUpdate& c : caches_) {
      if (c.circle || c.places >= most) continue;
      const std::string what = "state '" + graph_.values[c.past].name + "' " + shape_str(shape(c.past)) +
                               " has places for " + std::to_string(c.places);
      wrong = no_room(context_, most, what);
      context_.holds = {{c.places, what}};
      most = c.places;
    }
    return wrong.value_or(Status::ok());
  }

  // -- what reads the places

  // A value with an axis of places; `past`: of the past, whose places are those of past tokens.
  struct Places {
    int axis = 0;
    const CacheUpdate* cache = nullptr;
    bool past = false;
  };
  struct Edit {
    enum class Kind { kFirstRows, kExtents, kMask, kAddedMask, kHiddenMask } kind;
    int axis = 0;        // kFirstRows
    Shape dims = {};     // kExtents
    int64_t window = 0;  // of masks: how many tokens are seen, 0: all up to the own one
  };
  // An operand that may be a mask by places: what it would be then, if attention sees all tokens or the last ones.
  struct Mask {
    int node = -1;
    size_t operand = 0;
    const CacheUpdate* cache = nullptr;
    Edit::Kind kind = Edit::Kind::kMask;
  };

  Status plan() {
    users_ = graph_.users();
    for (const CacheUpdate& c : caches_) {
      places_[c.past] = {c.past_axis, &c, true};
      updates_.insert({c.node, &c});
      inside_.insert(c.nodes.begin(), c.nodes.end());
    }
    for (const CacheUpdate& c : caches_) SITU_RETURN_IF_ERROR(check_inside(c));
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& n = graph_.nodes[i];
      if (const auto it = updates_.find(static_cast<int>(i)); it != updates_.end()) {
        places_[n.out[0]] = {it->second->axis, it->second, false};
        continue;
      }
      if (inside_.count(static_cast<int>(i))) continue;
      SITU_RETURN_IF_ERROR(follow(n, static_cast<int>(i)));
    }
    for (const Node* n : attentions_) SITU_RETURN_IF_ERROR(check_attention(*n));
    for (const ValueId out : graph_.outputs)
      if (places_of(out) &&
          std::none_of(caches_.begin(), caches_.end(), [&](const CacheUpdate& c) { return c.present == out; }))
        return Status::error("'" + graph_.values[out].name + "' hands on the places of another state");
    // A circle has no first rows.
    for (const Mask& m : masks_)
      if (m.cache->circle && !edits_.count({m.node, m.operand}))
        return Status::error("'" + graph_.values[graph_.nodes[static_cast<size_t>(m.node)].in[m.operand]].name +
                             "' is read by the places of a circle");
    return Status::ok();
  }

  // Nothing outside of an update reads what stands between the past and its result.
  Status check_inside(const CacheUpdate& c) const {
    for (const int i : c.nodes) {
      if (i == c.node) continue;
      for (const ValueId v : graph_.nodes[static_cast<size_t>(i)].out) {
        if (v == kNoValue) continue;
        for (const auto& [user, operand] : users_[static_cast<size_t>(v)])
          if (!inside_.count(user)) return reads(graph_.nodes[static_cast<size_t>(user)], "a part of the update");
        if (graph_.is_output(v)) return Status::error("'" + graph_.values[v].name + "' is an output of the graph");
      }
    }
    return Status::ok();
  }
  static Status reads(const Node& n, const std::string& what) {
    return Status::error(n.label() + " reads " + what + " of the cache");
  }

  const Places* places_of(ValueId v) const {
    const auto it = places_.find(v);
    return it == places_.end() ? nullptr : &it->second;
  }

  Status follow(const Node& n, int index) {
    const Places* first = nullptr;
    size_t operand = 0;
    for (size_t i = 0; i < n.in.size() && !first; ++i)
      first = n.in[i] == kNoValue ? nullptr : places_of(n.in[operand = i]);
    if (!first) return Status::ok();
    const Places p = *first;
    const bool known = std::all_of(n.out.begin(), n.out.end(), [&](ValueId v) {
      return v == kNoValue || graph_.values[v].constant.present() || graph_.values[v].info.content;
    });
    if (known) {  // of its shape: extents stay what they were
      fixed_.insert(index);
      return Status::ok();
    }
    const bool unread = std::all_of(n.out.begin(), n.out.end(), [&](ValueId v) {
      return v == kNoValue || (users_[static_cast<size_t>(v)].empty() && !graph_.is_output(v));
    });
    if (unread) return Status::ok();
    if (operand == 0) {
      if (const auto axis = moved_axis(graph_, n, p.axis)) return move(n, index, p, *axis);
    }
    if (p.past) return reads(n, "the past");
    if (n.is("Attention", "situ")) return attend(n, index, p);
    if (n.is("Softmax")) return normalise(n, p);
    if (n.is("MatMul")) return multiply(n, p);
    if (n.is("Expand") && operand == 0) return expand(n, index, p);
    if (n.is("Slice") || n.is("Split") || n.is("Gather") || n.is("Concat")) return take_part(n, index, p);
    if (n.is("Rotary", "situ") && operand == 0) return rotate(n, index, p);
    if (n.def && n.def->placement == Placement::kElementwise && n.out.size() == 1) return elementwise(n, index, p);
    if (n.is("RMSNormalization") || n.is("LayerNormalization") || n.is("SimplifiedLayerNormalization")) {
      const int64_t given = n.attr_int("axis", -1), rank = static_cast<int64_t>(shape(n.in[0]).size());
      if (operand == 0 && (given < 0 ? given + rank : given) > p.axis) {
        places_[n.out[0]] = p;
        return Status::ok();
      }
    }
    return reads(n, "all places");
  }

  Status move(const Node& n, int index, const Places& p, int axis) {
    places_[n.out[0]] = {axis, p.cache, p.past};
    if (n.is("Reshape")) set_extents(n, index, p, axis);
    return Status::ok();
  }
  // A Reshape or Expand to as many rows as there are.
  void set_extents(const Node& n, int index, const Places& p, int axis) {
    Shape dims = shape(n.out[0]);
    dims[static_cast<size_t>(axis)] = p.past ? past() : length();
    edits_[{index, 1}] = {Edit::Kind::kExtents, 0, dims};
  }
  Status expand(const Node& n, int index, const Places& p) {
    const int axis = p.axis + static_cast<int>(shape(n.out[0]).size()) - static_cast<int>(shape(n.in[0]).size());
    places_[n.out[0]] = {axis, p.cache, false};
    set_extents(n, index, p, axis);
    return Status::ok();
  }

  // The same rows of another operand, which the host knows.
  Status cut(const Node& n, int index, size_t operand, int axis, const Places& p) {
    const ValueId v = n.in[operand];
    if (!prober_.known(v)) return Status::error(n.label() + " reads '" + graph_.values[v].name + "' beside the cache");
    if (p.cache->circle)
      return Status::error(n.label() + " reads '" + graph_.values[v].name + "' by the places of a circle");
    edits_[{index, operand}] = {Edit::Kind::kFirstRows, axis, {}};
    return Status::ok();
  }

  Status elementwise(const Node& n, int index, const Places& p) {
    size_t from_end = 0;
    for (const ValueId v : n.in)
      if (const Places* own = v == kNoValue ? nullptr : places_of(v)) {
        const size_t here = shape(v).size() - static_cast<size_t>(own->axis);
        if (own->past || (from_end != 0 && here != from_end) || own->cache->places != p.cache->places)
          return reads(n, "different axes");
        from_end = here;
      }
    for (size_t i = 0; i < n.in.size(); ++i) {
      const ValueId v = n.in[i];
      if (v == kNoValue || places_of(v) || shape(v).size() < from_end) continue;
      const size_t axis = shape(v).size() - from_end;
      if (shape(v)[axis] == Dim(1)) continue;
      if (from_end == 1 && is_mask(n, i)) {
        masks_.push_back({index, i, p.cache,
                          n.is("Add")          ? Edit::Kind::kAddedMask
                          : places_of(n.in[1]) ? Edit::Kind::kMask
                                               : Edit::Kind::kHiddenMask});
        if (p.cache->circle) continue;
      }
      SITU_RETURN_IF_ERROR(cut(n, index, i, static_cast<int>(axis), p));
    }
    places_[n.out[0]] = {static_cast<int>(shape(n.out[0]).size() - from_end), p.cache, false};
    return Status::ok();
  }
  // Where(mask, scores, hidden), Where(not mask, hidden, scores), scores + mask
  bool is_mask(const Node& n, size_t i) const {
    const DType type = graph_.values[n.in[i]].info.type;
    return prober_.known(n.in[i]) &&
           ((n.is("Where") && i == 0) || (n.is("Add") && n.in.size() == 2 && dtype_is_float(type)));
  }

  Status multiply(const Node& n, const Places&) {
    const Places *a = places_of(n.in[0]), *b = places_of(n.in[1]);
    const int rank_a = static_cast<int>(shape(n.in[0]).size()), rank_b = static_cast<int>(shape(n.in[1]).size()),
              rank = static_cast<int>(shape(n.out[0]).size());
    if (rank_a < 2 || rank_b < 2) return reads(n, "a row");
    const bool summed_a = a && a->axis == rank_a - 1, summed_b = b && b->axis == rank_b - 2;
    if (summed_a && summed_b && a->cache->places == b->cache->places && a->cache->circle == b->cache->circle)
      return Status::ok();
    if (a && !b && a->axis == rank_a - 2)
      places_[n.out[0]] = {rank - 2, a->cache, false};
    else if (b && !a && b->axis == rank_b - 1)
      places_[n.out[0]] = {rank - 1, b->cache, false};
    else
      return reads(n, "all places");
    return Status::ok();
  }

  Status normalise(const Node& n, const Places& p) {
    const int64_t rank = static_cast<int64_t>(shape(n.in[0]).size()), given = n.attr_int("axis", n.opset < 13 ? 1 : -1),
                  axis = given < 0 ? given + rank : given;
    if (axis != rank - 1) return reads(n, "all places");
    if (axis == p.axis) attentions_.push_back(&n);
    places_[n.out[0]] = p;
    return Status::ok();
  }

  Status attend(const Node& n, int index, const Places& p) {
    const Places *k = places_of(n.in[1]), *v = places_of(n.in[2]);
    if (!k || !v || k->axis != 2 || v->axis != 2 || k->past || v->past || places_of(n.in[0]) ||
        k->cache->circle != v->cache->circle)
      return reads(n, "places of keys or values alone");
    if (n.attr_int("causal", 0) != 0 || n.attr_int("window", -1) > 0 || n.has_input(4) || n.has_input(6))
      return Status::error(n.label() + " counts keys from the last place of a cache");
    if (!n.has_input(3)) return Status::error(n.label() + " sees places without a token: it has no mask");
    attentions_.push_back(&n);
    if (shape(n.in[3]).empty() || shape(n.in[3]).back() == Dim(1)) return Status::ok();
    if (!prober_.known(n.in[3])) return Status::error(n.label() + " has a mask that the host does not know");
    masks_.push_back({index, 3, p.cache, Edit::Kind::kMask});
    return p.cache->circle ? Status::ok() : cut(n, index, 3, static_cast<int>(shape(n.in[3]).size()) - 1, p);
  }

  Status rotate(const Node& n, int index, const Places& p) {
    if (p.axis != 2) return reads(n, "all places");
    for (size_t i = 1; i < n.in.size(); ++i) {
      if (n.in[i] == kNoValue || (n.has_input(3) && i < 3)) continue;
      const int rank = static_cast<int>(shape(n.in[i]).size()), axis = i == 3 ? rank - 1 : rank - 2;
      if (axis < 0 || shape(n.in[i])[static_cast<size_t>(axis)] == Dim(1)) continue;
      SITU_RETURN_IF_ERROR(cut(n, index, i, axis, p));
    }
    places_[n.out[0]] = p;
    return Status::ok();
  }

  // Parts of other axes, and the first rows as far as tokens were written.
  Status take_part(const Node& n, int index, const Places& p) {
    const int rank = static_cast<int>(shape(n.in[0]).size());
    const auto whole_axis = [&](int64_t a) { return static_cast<int>(a < 0 ? a + rank : a); };
    if (n.is("Slice")) {
      const auto begins = content_of(graph_, n, 1), ends = content_of(graph_, n, 2), axes = content_of(graph_, n, 3),
                 steps = content_of(graph_, n, 4);
      if (n.in[0] == kNoValue || !places_of(n.in[0]) || !begins || !ends) return reads(n, "parts");
      for (size_t i = 0; i < begins->size(); ++i) {
        const Dim given = axes ? (*axes)[i] : Dim(static_cast<int64_t>(i));
        if (!given.is_const()) return reads(n, "parts");
        if (whole_axis(given.value()) != p.axis) continue;
        const bool all = (*ends)[i].lower_bound() >= p.cache->places, written = (*ends)[i] == length();
        if ((*begins)[i] != Dim(0) || (steps && (*steps)[i] != Dim(1)) || !(all || written) || p.cache->circle)
          return reads(n, "some places");
        if (written) return Status::ok();  // no place without a token is left
      }
      places_[n.out[0]] = p;
      return Status::ok();
    }
    const int axis = whole_axis(n.attr_int("axis", 0));
    if (n.is("Concat")) {
      if (axis == p.axis) return reads(n, "all places");
      for (size_t i = 0; i < n.in.size(); ++i) {
        const Places* own = places_of(n.in[i]);
        if (own && (own->axis != p.axis || own->past || own->cache->places != p.cache->places))
          return reads(n, "different axes");
        if (!own) SITU_RETURN_IF_ERROR(cut(n, index, i, p.axis, p));
      }
      places_[n.out[0]] = p;
      return Status::ok();
    }
    if (!places_of(n.in[0]) || axis == p.axis) return reads(n, "some places");
    const int grown = static_cast<int>(shape(n.out[0]).size()) - rank;  // a Gather by one number leaves its axis out
    for (const ValueId v : n.out)
      if (v != kNoValue) places_[v] = {p.axis + (p.axis > axis ? grown : 0), p.cache, false};
    return Status::ok();
  }

  // -- what attention sees of the places

  // A mask as attention takes it, or what Softmax reads of random scores: [.., S or 1, N].
  Result<Tensor> seen(const Node& n, int64_t tokens, int64_t past) {
    if (!n.is("Softmax")) return prober_.host_value(n.in[3], tokens, past);
    const ValueId scores = prober_.scores(n, kMostScoreNodes);
    const Places* p = scores == kNoValue ? nullptr : places_of(scores);
    if (!p || p->axis != static_cast<int>(shape(scores).size()) - 1 ||
        !prober_.cone(n.in[0], scores, kMostScoreNodes) || graph_.values[scores].info.type != DType::kF32)
      return Status::error("what hides places from it cannot be told");
    return prober_.evaluate(n.in[0], {{scores, prober_.random(prober_.dims(scores, tokens, past), 7)}}, tokens, past);
  }
  static bool hidden(const Tensor& t, float x) { return t.type() == DType::kBool ? x == 0 : !(x > kMasked); }

  Status check_attention(const Node& n) {
    const CacheUpdate* cache = places_of(n.is("Softmax") ? n.in[0] : n.in[1])->cache;
    std::vector<int> nodes{graph_.values[n.out[0]].producer};
    if (!classes_) classes_.emplace(graph_);
    std::string key = n.op + std::to_string(cache->places) + (cache->rolls ? "on" : "");
    std::vector<ValueId> rules;
    if (n.is("Softmax")) {
      const ValueId scores = prober_.scores(n, kMostScoreNodes);
      const auto cone = scores == kNoValue ? std::nullopt : prober_.cone(n.in[0], scores, kMostScoreNodes);
      if (!cone) return Status::error(n.label() + ": what hides places from it cannot be told");
      nodes = cone->nodes;
      for (const int i : nodes)
        for (const ValueId v : graph_.nodes[static_cast<size_t>(i)].in)
          if (prober_.changes(v)) rules.push_back(v);
      key += cone_key(graph_, nodes, scores, [&](ValueId v) { return std::to_string(classes_->of(v)); });
    } else {
      rules.push_back(n.in[3]);
    }
    // Layers are alike.
    for (const ValueId v : rules) key += "," + std::to_string(classes_->of(v));
    auto it = seen_.find(key);
    if (it == seen_.end()) {
      Result<Seen> seen = look(n, *cache, rules);
      if (!seen.is_ok()) return seen.status();
      it = seen_.emplace(key, *seen).first;
    }
    if (!it->second.last) return Status::ok();
    for (const Mask& m : masks_) {
      if (std::find(nodes.begin(), nodes.end(), m.node) == nodes.end()) continue;
      const ValueId mask = graph_.nodes[static_cast<size_t>(m.node)].in[m.operand];
      if (hides_alone(mask, it->second.steps)) edits_[{m.node, m.operand}] = {m.kind, 0, {}, it->second.window};
    }
    return Status::ok();
  }

  // What attention sees of the places: those of the last `window` tokens up to each one, 0: of all; or other ones, of
  // which none are without a token.
  struct Seen {
    bool last = true;
    int64_t window = 0;
    std::vector<std::pair<int64_t, int64_t>> steps = {};  // at which that was looked at
  };

  // Steps that tell what a mask does: of a short cache all of single tokens, of a long one some, and those that tell
  // all others. Empty: there are none.
  std::vector<std::pair<int64_t, int64_t>> steps(const Node& n, const CacheUpdate& cache,
                                                 const std::vector<ValueId>& rules) const {
    const int64_t longest = cache.circle
                                ? std::max(cache.places + 1, std::min(context_.context_length, 4 * cache.places))
                                : std::min(cache.places, context_.context_length);
    std::vector<std::pair<int64_t, int64_t>> all{{1, longest - 1}};  // tells a window
    const auto add = [&](int64_t tokens, int64_t past) {
      if (tokens < 1 || past < 0 || tokens + past > (tokens > 1 ? std::min(longest, cache.places) : longest)) return;
      if (context_.phase != Phase::kDecode || tokens == 1) all.emplace_back(tokens, past);
    };
    for (const auto& [tokens, past] : {std::pair<int64_t, int64_t>{2, 0},
                                       {3, 2},
                                       {5, 11},
                                       {7, cache.places / 2},
                                       {2, cache.places - 2},
                                       {std::min<int64_t>(cache.places, 64), 0}})
      add(tokens, past);
    for (const int64_t edge : {cache.places, 2 * cache.places})
      for (int64_t past = edge - 2; past <= edge + 1; ++past) add(1, past);
    const int64_t elements = longest * cache.places * (n.is("Softmax") ? shape_count(heads_of(n)).value() : 1);
    const int64_t stride = longest <= kFewPlaces || elements <= kManyElements ? 1 : longest / kSomeLengths;
    for (int64_t past = 0; past < longest; past += stride) add(1, past);
    const TellingSteps telling =
        telling_steps(graph_, prober_, rules, context_.phase, longest, Judged::kByValue, kMostCacheElements);
    for (const auto& [tokens, past] : telling.steps) add(tokens, past);
    if (stride > 1 && !telling.told) all.clear();
    return all;
  }
  // Of scores: what stands before queries and keys.
  Shape heads_of(const Node& softmax) const {
    const Shape& scores = shape(softmax.in[0]);
    Shape heads;
    for (size_t i = 0; i + 2 < scores.size(); ++i)
      if (scores[i].is_const()) heads.push_back(scores[i]);
    return heads;
  }

  // Error: places without a token are seen, or those of a circle by another rule.
  Result<Seen> look(const Node& n, const CacheUpdate& cache, const std::vector<ValueId>& rules) {
    Seen result;
    int64_t window = 0;
    result.steps = steps(n, cache, rules);
    if (result.steps.empty()) return Status::error(n.label() + ": what its mask does at every step is not shown");
    for (const auto& [tokens, past] : result.steps) {
      const Result<Tensor> mask = seen(n, tokens, past);
      if (!mask.is_ok()) return Status::error(n.label() + ": " + mask.status().message());
      if (mask->rank() < 1 || mask->dims().back() != cache.places)
        return Status::error(n.label() + ": its mask has no column for each place");
      const int64_t rows = mask->rank() > 1 ? mask->dims()[static_cast<size_t>(mask->rank()) - 2] : 1;
      if (rows != tokens && rows != 1) return Status::error(n.label() + ": its mask has no row for each token");
      const std::vector<float> all = floats(*mask);
      const auto shown = [&](size_t i) { return !hidden(*mask, all[i]); };
      if (window == 0) {
        for (size_t i = all.size() - static_cast<size_t>(cache.places); i < all.size(); ++i) window += shown(i) ? 1 : 0;
        result.window = cache.circle || window < past + tokens ? window : 0;
      }
      for (size_t i = 0; i < all.size(); ++i) {
        const int64_t place = static_cast<int64_t>(i) % cache.places,
                      row = static_cast<int64_t>(i) / cache.places % rows;
        const int64_t own = past + (rows == 1 ? tokens - 1 : row);
        // The last token up to this one that was written there; beyond what is written: none.
        const int64_t token =
            cache.rolls ? past + tokens - cache.places + place : own - (own - place + 2 * cache.places) % cache.places;
        const bool last = token >= 0 && token <= own && token > own - window;
        result.last = result.last && last == shown(i) && rows == tokens;
        if (cache.circle && last != shown(i))
          return Status::error(n.label() + ": token " + std::to_string(own) + " does not see the last " +
                               std::to_string(window) + " tokens of a circle of " + std::to_string(cache.places));
        if (!cache.circle && shown(i) && place >= tokens + past)
          return Status::error(n.label() + " sees place " + std::to_string(place) + " of " +
                               std::to_string(cache.places) + " after " + std::to_string(tokens + past) + " tokens");
      }
      // What is hidden by a number that is not infinite is seen where all of a row is.
      for (size_t row = 0; n.is("Softmax") && row < all.size(); row += static_cast<size_t>(cache.places)) {
        bool any = false;
        for (size_t j = row; j < row + static_cast<size_t>(cache.places); ++j) any = any || shown(j);
        if (!any) return Status::error(n.label() + " has a row that sees nothing");
      }
    }
    return result;
  }

  // Of bool; or what is added is 0 or hides.
  bool hides_alone(ValueId mask, const std::vector<std::pair<int64_t, int64_t>>& steps) {
    if (!dtype_is_float(graph_.values[mask].info.type)) return true;
    const auto known = hides_.find(mask);
    if (known != hides_.end()) return known->second;
    bool hides = true;
    for (const auto& [tokens, past] : steps) {
      const Result<Tensor> t = prober_.host_value(mask, tokens, past);
      if (!t.is_ok()) return hides_[mask] = false;
      for (const float x : floats(*t)) hides = hides && (x == 0 || !(x > kMasked));
    }
    return hides_[mask] = hides;
  }

  // -- the graph that appends

  ValueId scalar(const Dim& d) {
    const ValueId v = graph_.add_value("cache/number", DType::kI64);
    graph_.values[v].info = {DType::kI64, true, {}, Shape{d}};
    return v;
  }

  Status apply() {
    Builder builder(graph_);
    CacheAppender appender(context_, builder);
    for (const CacheUpdate& c : caches_) {
      Shape& rows = graph_.values[c.past].info.shape;
      rows[static_cast<size_t>(c.past_axis)] = past();
    }
    std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    std::map<std::pair<ValueId, int>, ValueId> cuts;
    std::map<int64_t, ValueId> windows, added;
    for (size_t i = 0; i < nodes.size(); ++i) {
      Node& n = nodes[i];
      const int index = static_cast<int>(i);
      if (const auto it = updates_.find(index); it != updates_.end()) {
        appender.append(n, *it->second);
        continue;
      }
      if (inside_.count(index) || fixed_.count(index)) continue;
      builder.start(n);
      for (size_t o = 0; o < n.in.size(); ++o) {
        const auto it = edits_.find({index, o});
        if (it == edits_.end()) continue;
        const Edit& edit = it->second;
        switch (edit.kind) {
          case Edit::Kind::kExtents:
            n.in[o] = graph_.add_shape(n.name + "/extents", edit.dims);
            break;
          case Edit::Kind::kFirstRows: {
            ValueId& cut = cuts.try_emplace({n.in[o], edit.axis}, kNoValue).first->second;
            if (cut == kNoValue)
              cut = builder.op("Slice", {n.in[o], builder.constant_i64({0}), graph_.add_shape("cache/rows", {length()}),
                                         builder.constant_i64({edit.axis})});
            n.in[o] = cut;
            break;
          }
          default: {
            ValueId& mask = windows.try_emplace(edit.window, kNoValue).first->second;
            if (mask == kNoValue) mask = last_tokens(builder, edit.window);
            const bool adds = edit.kind == Edit::Kind::kAddedMask;
            const DType type = graph_.values[n.in[o]].info.type;
            if (adds && !added.count(edit.window)) added[edit.window] = as_added(builder, mask);
            n.in[o] = adds                                   ? added[edit.window]
                      : edit.kind == Edit::Kind::kHiddenMask ? builder.op("Not", {mask})
                                                             : mask;
            if (adds && type != DType::kF32) n.in[o] = builder.cast(n.in[o], type);
          }
        }
      }
      builder.keep(std::move(n));
    }
    SITU_RETURN_IF_ERROR(builder.finish());
    graph_.remove_dead_nodes();
    return Status::ok();
  }

  // [S, P + S] of bool: the last tokens that each token sees; 0: all up to itself.
  ValueId last_tokens(Builder& b, int64_t window) {
    const ValueId one = scalar(Dim(1)), end = scalar(length());
    const ValueId keys = b.op("Range", {scalar(Dim(0)), end, one}), own = b.op("Range", {scalar(past()), end, one});
    const ValueId column = b.op("Unsqueeze", {own, b.constant_i64({1})}), up_to = b.op("LessOrEqual", {keys, column});
    if (window == 0) return up_to;
    const ValueId begin = b.op("Sub", {column, b.constant_i64({window})});
    return b.op("And", {up_to, b.op("Greater", {keys, begin})});
  }
  ValueId as_added(Builder& b, ValueId mask) {
    const Tensor zero = Tensor::allocate(DType::kF32, {}), low = Tensor::allocate(DType::kF32, {});
    *zero.view().as<float>() = 0;
    *low.view().as<float>() = -__builtin_inff();
    return b.op("Where", {mask, graph_.add_constant("cache/seen", zero), graph_.add_constant("cache/hidden", low)});
  }

  PassContext& context_;
  Graph& graph_;
  Prober prober_;
  std::vector<CacheUpdate> caches_;
  std::vector<std::vector<std::pair<int, int>>> users_;
  std::map<ValueId, Places> places_;
  std::map<int, const CacheUpdate*> updates_;     // by the node that gives the result
  std::set<int> inside_, fixed_;                  // nodes that go: of updates; that tell extents
  std::map<std::pair<int, size_t>, Edit> edits_;  // of a node's operands
  std::vector<const Node*> attentions_;
  std::vector<Mask> masks_;
  std::optional<ValueClasses> classes_;
  std::map<std::string, Seen> seen_;  // by attention, as layers are alike
  std::map<ValueId, bool> hides_;
};

}  // namespace

Status lift_caches(PassContext& context) {
  if (context.encoder) return Status::ok();
  return CacheLifter(context).run();
}

}  // namespace situ
