// Heads that a graph repeats before it caches them (Falcon with new_decoder_architecture) are cached once, and repeated
// when they are read, which attention does for nothing:
//   present = Concat(past, f(Repeat(x)))  ->  present' = Concat(past', f(x)), present = Repeat(present')
// where f transposes, rotates, and is elementwise, alike for all heads; past' and present' have as many heads as x.
// Every row would be written several times else. All states or none: attention reads K and V with one mapping of heads.
#include <algorithm>
#include <map>
#include <optional>

#include "ops/op.h"
#include "passes/context/builder.h"
#include "passes/context/pass_context.h"
#include "passes/states/passes.h"

namespace situ {
namespace {

// A value that is `source` [.., groups, 1, ..] repeated on one axis, and then taken through `nodes`.
struct Repeat {
  ValueId source = kNoValue;
  int64_t groups = 0, repeats = 0;
  struct Link {
    int node;
    size_t axis;     // that is repeated in what it gives
    size_t operand;  // that it comes from
  };
  std::vector<Link> nodes;  // first applied last
};

class Unrepeater {
 public:
  explicit Unrepeater(PassContext& context)
      : context_(context), graph_(context.graph), builder_(graph_), users_(graph_.users()) {}

  Status run() {
    std::map<int, std::pair<StatePair*, Repeat>> concats;
    for (StatePair& s : context_.binding.states) {
      const std::optional<Repeat> repeat = repeat_of(s);
      if (!repeat || !concats.emplace(graph_.values[s.present].producer, std::make_pair(&s, *repeat)).second)
        return Status::ok();
      if (repeat->repeats != concats.begin()->second.second.repeats) return Status::ok();
    }
    if (concats.empty()) return Status::ok();
    nodes_ = graph_.nodes;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const auto it = concats.find(static_cast<int>(i));
      if (it == concats.end())
        builder_.keep(nodes_[i]);
      else
        append(nodes_[i], *it->second.first, it->second.second);
    }
    SITU_RETURN_IF_ERROR(builder_.finish());
    graph_.remove_dead_nodes();
    return Status::ok();
  }

 private:
  const Shape& shape(ValueId v) const { return graph_.values[v].info.shape; }

  // Of the rows that an append state takes.
  std::optional<Repeat> repeat_of(const StatePair& s) const {
    const int c = s.rule == StateRule::kAppend ? graph_.values[s.present].producer : -1;
    if (c < 0 || !graph_.nodes[static_cast<size_t>(c)].is("Concat")) return std::nullopt;
    const Node& concat = graph_.nodes[static_cast<size_t>(c)];
    if (concat.in.size() != 2 || concat.in[0] != s.past || users_[s.past].size() != 1) return std::nullopt;
    const Shape& rows = shape(concat.in[1]);
    // Heads stand behind the batch, or behind the tokens where these do: [B, H, T, D], [B, H, D, T], [B, T, H, D].
    const size_t heads = s.axis == 1 ? 2 : 1;
    if (rows.size() != 4 || s.axis == 0 || !(shape(s.past)[heads] == rows[heads])) return std::nullopt;
    return find(concat.in[1], heads);
  }

  std::optional<Repeat> find(ValueId v, size_t axis) const {
    Repeat repeat;
    while (graph_.values[v].producer >= 0) {
      const int p = graph_.values[v].producer;
      const Node& n = graph_.nodes[static_cast<size_t>(p)];
      if (n.is("Reshape")) {
        if (!repeats(n, axis)) return std::nullopt;
        repeat.source = graph_.producer(n.in[0])->in[0];
        repeat.groups = shape(n.in[0])[axis].value();
        repeat.repeats = shape(n.in[0])[axis + 1].value();
        repeat.nodes.push_back({p, axis, 0});
        return repeat;
      }
      if (users_[v].size() != 1 || n.out.size() != 1) return std::nullopt;  // it would be computed for the others too
      const std::optional<size_t> operand = varying_operand(n, axis);
      if (!operand) return std::nullopt;
      repeat.nodes.push_back({p, axis, *operand});
      if (n.is("Transpose")) axis = static_cast<size_t>(n.permutation(shape(v).size())[axis]);
      v = n.in[*operand];
    }
    return std::nullopt;
  }

  // The operand that has the axis, where the others are the same for all places of it.
  std::optional<size_t> varying_operand(const Node& n, size_t axis) const {
    if (n.is("Transpose")) return 0;
    const bool elementwise = n.domain.empty() && n.def && (n.def->placement == Placement::kElementwise || n.is("Cast"));
    if (!elementwise && !(n.is("Rotary", "situ") && axis == 1)) return std::nullopt;
    const size_t from_end = shape(n.out[0]).size() - axis;
    std::optional<size_t> varying;
    for (size_t i = 0; i < n.in.size(); ++i) {
      if (n.in[i] == kNoValue) continue;
      const Shape& s = shape(n.in[i]);
      if (s.size() < from_end || s[s.size() - from_end] == Dim(1)) continue;
      if (varying || s.size() != shape(n.out[0]).size()) return std::nullopt;
      varying = i;
    }
    return varying;
  }

  // Reshape of Expand: [.., groups, repeats, ..] -> [.., groups * repeats, ..] on `axis`.
  bool repeats(const Node& n, size_t axis) const {
    const int p = graph_.values[n.in[0]].producer;
    if (p < 0 || !graph_.nodes[static_cast<size_t>(p)].is("Expand")) return false;
    const Shape &whole = shape(n.out[0]), &split = shape(n.in[0]),
                &once = shape(graph_.nodes[static_cast<size_t>(p)].in[0]);
    if (split.size() != whole.size() + 1 || once.size() != split.size() || !split[axis].is_const() ||
        !split[axis + 1].is_const() || split[axis + 1].value() < 2)
      return false;
    for (size_t i = 0; i < split.size(); ++i) {
      if (!(once[i] == (i == axis + 1 ? Dim(1) : split[i]))) return false;
      if (i != axis && i != axis + 1 && !(split[i] == whole[i < axis ? i : i - 1])) return false;
    }
    return whole[axis] == Dim(split[axis].value() * split[axis + 1].value());
  }

  // `v` takes the info of `like`, with `groups` on `axis`.
  void inform(ValueId v, ValueId like, size_t axis, int64_t groups) {
    graph_.values[v].info = graph_.values[like].info;
    graph_.values[v].info.shape[axis] = Dim(groups);
  }

  void append(const Node& concat, StatePair& s, const Repeat& repeat) {
    builder_.start(concat);
    ValueId x = repeat.source;
    for (auto it = repeat.nodes.rbegin(); it != repeat.nodes.rend(); ++it) {
      const Node& n = nodes_[static_cast<size_t>(it->node)];
      Shape dims = shape(n.out[0]);
      dims[it->axis] = Dim(repeat.groups);
      std::vector<ValueId> in = n.in;
      in[it->operand] = x;
      if (n.is("Reshape")) in[1] = graph_.add_shape(n.name + "/once/dims", dims);
      x = builder_.again(n, in);
      inform(x, n.out[0], it->axis, repeat.groups);
    }
    const size_t axis = repeat.nodes.front().axis;
    const ValueId whole = concat.out[0],
                  present = graph_.add_value(graph_.values[whole].name, graph_.values[whole].info.type);
    inform(s.past, s.past, axis, repeat.groups);
    inform(present, whole, axis, repeat.groups);
    Node once = concat;
    once.in[1] = x;
    once.out[0] = present;
    builder_.keep(std::move(once));
    Shape split = shape(present);
    split.insert(split.begin() + static_cast<int64_t>(axis) + 1, Dim(1));
    ValueId y = builder_.op("Reshape", {present, graph_.add_shape(concat.name + "/split/dims", split)});
    graph_.values[y].info = {graph_.values[present].info.type, true, split, {}};
    split[axis + 1] = Dim(repeat.repeats);
    y = builder_.op("Expand", {y, graph_.add_shape(concat.name + "/repeated/dims", split)});
    graph_.values[y].info = {graph_.values[present].info.type, true, split, {}};
    builder_.op("Reshape", {y, graph_.add_shape(concat.name + "/whole/dims", shape(whole))}, whole);
    std::replace(graph_.outputs.begin(), graph_.outputs.end(), s.present, present);
    s.present = present;
    context_.note("state of repeated heads", concat.name,
                  std::to_string(repeat.groups) + " of " + std::to_string(shape(whole)[axis].value()) + " are cached");
  }

  PassContext& context_;
  Graph& graph_;
  Builder builder_;
  std::vector<std::vector<std::pair<int, int>>> users_;
  std::vector<Node> nodes_;  // before the pass
};

}  // namespace

Status unrepeat_states(PassContext& context) { return Unrepeater(context).run(); }

}  // namespace situ
