// What stands around rotary embeddings goes into them, where it would be a copy:
//   Concat(Rotary(first columns of x), the others)  ->  Rotary(x)
//   Rotary(Reshape(Transpose(Reshape(x))))  ->  Rotary(x), which reads pairs and writes halves (DeepSeek's order of
//   numbers) Concat(k, Expand(Rotary(x)))            ->  Concat(k, Rotary(Expand(x))): a part that all heads share and
//   a cache has for each of
//                                               them (multi-head latent attention) is computed where each head has it
//   Rotary(x, Concat(cos [S, C], ..), Concat(sin, ..), 0 .. S - 1)  ->  Rotary(x, cos, sin)
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "passes/context/part.h"
#include "passes/context/pass_context.h"
#include "passes/host/index_form.h"
#include "passes/recognise/passes.h"

namespace situ {
namespace {

// Rotary of the first columns of x with the other columns behind it, as fused operators are used, is Rotary of x.
void take_whole_rows(Graph& graph) {
  for (Node& concat : graph.nodes) {
    if (!concat.is("Concat") || concat.in.size() != 2) continue;
    const Node* rotary = graph.producer(concat.in[0]);
    if (!rotary || !rotary->is("Rotary", "situ")) continue;
    const ValueId parts[] = {rotary->in[0], concat.in[1]};
    const Node *first = graph.producer(parts[0]), *rest = graph.producer(parts[1]);
    if (!first || !rest || first->in.empty() || rest->in.empty() || first->in[0] != rest->in[0]) continue;
    const Shape &x = graph.values[first->in[0]].info.shape, &rotated = graph.values[parts[0]].info.shape;
    const size_t last = x.size() - 1;
    const auto begins_at = [&](const Node& n, ValueId v, const Dim& begin) {
      const std::optional<AxisPart> part =
          part_of(graph, n, static_cast<size_t>(std::find(n.out.begin(), n.out.end(), v) - n.out.begin()));
      return part && part->axis == last && part->begin == begin;
    };
    const int64_t axis = concat.attr_int("axis", 0);
    if (rotated.size() != x.size() || (axis != -1 && axis != static_cast<int64_t>(last)) ||
        !(graph.values[concat.out[0]].info.shape == x))
      continue;
    if (!begins_at(*first, parts[0], Dim(0)) || !begins_at(*rest, parts[1], rotated[last])) continue;
    Node whole = *rotary;
    whole.in[0] = first->in[0];
    whole.out = concat.out;
    concat = std::move(whole);
  }
  graph.rebuild_links();
}

// The Reshape to pairs [.., D / 2, 2] that are put behind each other, [.., 2, D / 2], to make v [.., D]; null: v is
// made otherwise.
const Node* pairs_of(const Graph& graph, ValueId v) {
  const Node* merge = graph.producer(v, "Reshape");
  const Node* swap = merge ? graph.producer(merge->in[0], "Transpose") : nullptr;
  const Node* split = swap ? graph.producer(swap->in[0], "Reshape") : nullptr;
  const Shape& y = graph.values[v].info.shape;
  if (!split || y.empty() || !y.back().is_const() || y.back().value() % 2 != 0) return nullptr;
  const Shape& pairs = graph.values[split->out[0]].info.shape;
  Shape expected(y.begin(), y.end() - 1);
  expected.push_back(Dim(y.back().value() / 2));
  expected.push_back(Dim(2));
  if (!(pairs == expected)) return nullptr;
  std::vector<int64_t> perm = swap->permutation(pairs.size());
  std::swap(perm[perm.size() - 2], perm[perm.size() - 1]);
  for (size_t i = 0; i < perm.size(); ++i)
    if (perm[i] != static_cast<int64_t>(i)) return nullptr;
  return split;
}

void read_pairs(Graph& graph) {
  std::vector<Node> reshapes;
  for (Node& n : graph.nodes) {
    if (!n.is("Rotary", "situ") || n.attr_int("interleaved", 0) != 0 || n.attr_int("pairs_to_halves", 0) != 0) continue;
    const ValueInfo info = graph.values[n.in[0]].info;
    if (info.shape.size() != 4 || !(info.shape[3] == Dim(n.attr_int("rotary_dim", 0)))) continue;
    const Node* split = pairs_of(graph, n.in[0]);
    if (!split) continue;
    reshapes.push_back(*split);  // of the same numbers, with dims as they are behind the change
    Node& whole = reshapes.back();
    whole.name += "/whole";
    whole.in[1] = graph.add_shape(whole.name + "/dims", info.shape);
    whole.out[0] = graph.add_value(whole.name, info.type);
    graph.values[whole.out[0]].info = info;
    n.in[0] = whole.out[0];
    n.set_int("pairs_to_halves", 1);
  }
  for (Node& n : reshapes) graph.add_node(std::move(n));
}

// Expand of heads alone: [B, 1, S, D] -> [B, H, S, D].
bool expands_heads(const Graph& graph, const Node& n) {
  const Shape &x = graph.values[n.in[0]].info.shape, &y = graph.values[n.out[0]].info.shape;
  return n.is("Expand") && x.size() == 4 && y.size() == 4 && x[0] == y[0] && x[1] == Dim(1) && x[2] == y[2] &&
         x[3] == y[3];
}

void rotate_for_each_head(Graph& graph) {
  const auto users = graph.users();
  for (Node& expand : graph.nodes) {
    if (!expands_heads(graph, expand) || users[expand.out[0]].size() != 1 || graph.is_output(expand.out[0])) continue;
    const int p = graph.values[expand.in[0]].producer;
    const Node* reader = &graph.nodes[static_cast<size_t>(users[expand.out[0]][0].first)];
    if (reader->is("Transpose") && users[reader->out[0]].size() == 1 && users[reader->out[0]][0].first >= 0)
      reader = &graph.nodes[static_cast<size_t>(users[reader->out[0]][0].first)];
    if (p < 0 || users[expand.in[0]].size() != 1 || graph.is_output(expand.in[0]) || !reader->is("Concat")) continue;
    Node& rotary = graph.nodes[static_cast<size_t>(p)];
    if (!rotary.is("Rotary", "situ")) continue;
    const Node rotated = rotary, repeated = expand;
    const ValueId x = rotated.in[0], between = rotated.out[0];
    rotary = repeated;
    rotary.in[0] = x;
    rotary.out[0] = between;
    expand = rotated;
    expand.in[0] = between;
    expand.out[0] = repeated.out[0];
    graph.values[between].info = graph.values[repeated.out[0]].info;
    graph.values[between].info.type = graph.values[x].info.type;
  }
}

// Tables that hold the rows of the new tokens in front of others, which are not read.
void read_new_rows(PassContext& context) {
  Graph& graph = context.graph;
  const Prober prober(graph, context.binding, context.evaluator);
  IndexForms forms(graph, context.binding, prober, context.evaluator, 0, 0);
  const auto shape = [&](ValueId v) -> const Shape& { return graph.values[v].info.shape; };
  for (Node& n : graph.nodes) {
    if (!n.is("Rotary", "situ") || !n.has_input(3) || shape(n.in[3]).size() != 2 || shape(n.in[3])[0] != Dim(1))
      continue;
    const Dim tokens = shape(n.in[3])[1];
    const std::optional<IndexForm> row = forms.find(n.in[3]);
    if (!row || row->has_table() || row->offset != Dim(0) || (row->steps[1] != 1 && tokens != Dim(1))) continue;
    std::vector<ValueId> in{n.in[0]};
    for (const size_t i : {1, 2})
      if (const Node* all = graph.producer(n.in[i], "Concat");
          all && all->attr_int("axis", 0) == 0 && shape(all->in[0])[0] == tokens)
        in.push_back(all->in[0]);
    if (in.size() == 3) n.in = std::move(in);
  }
}

}  // namespace

Status simplify_rotary(PassContext& context) {
  Graph& graph = context.graph;
  read_new_rows(context);
  take_whole_rows(graph);
  read_pairs(graph);
  rotate_for_each_head(graph);
  SITU_RETURN_IF_ERROR(graph.sort());
  graph.remove_dead_nodes();
  return Status::ok();
}

}  // namespace situ
