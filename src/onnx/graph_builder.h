// Parsed protobuf -> Graph: names resolved, functions inlined, Constant nodes turned into values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "graph/graph.h"
#include "onnx/model_proto.h"
#include "onnx/name_scope.h"
#include "onnx/tensor_proto.h"

namespace situ::onnx {

class GraphBuilder {
 public:
  GraphBuilder(const ModelProto& model, TensorReader& tensors, bool (*is_operator)(const Node&) = nullptr);
  // Throws ImportError.
  Graph build();
  // After build(): operators that mean something else than in the opsets that are known as a whole.
  Status refuse_changed() const;

 private:
  struct Environment;

  // An attribute in the file, and where the names in it are to be looked up.
  struct AttributeSource {
    std::string_view bytes;
    const Environment* environment = nullptr;
    int64_t node = -1, index = -1;
  };
  // One call that is being inlined.
  struct Call {
    const FunctionProto& function;
    const Call* outer;                                                 // the call whose body holds this one
    std::unordered_map<std::string_view, AttributeSource> attributes;  // what the body's ref_attr_name may name
  };
  // What the text of a node refers to: the values, opsets and attributes around it.
  struct Environment {
    NameScope& scope;
    const Opsets& opsets;
    const Call* call;      // null outside of functions
    const WirePath& path;  // of the graph or function that holds the nodes
    std::string prefix;    // of value and node names; "" outside of functions
  };
  struct ResolvedAttribute {
    AttributeProto proto;
    AttributeSource source;
  };
  // "graph.node[17].attribute[0]"; lives on the stack of whoever reads the attribute.
  struct AttributePath {
    explicit AttributePath(const AttributeSource& source);
    AttributePath(const AttributePath&) = delete;
    WirePath node, attribute;
  };

  // graph_builder.cc
  void build_graph(const GraphProto& proto, const Environment& environment);
  void declare_initializers(const GraphProto& proto, const Environment& environment);
  void declare_inputs(const GraphProto& proto, const Environment& environment);
  // `targets`: names whose values exist already (the outputs of an inlined function).
  using Targets = std::unordered_map<std::string_view, ValueId>;
  void declare_node_outputs(const std::vector<NodeProto>& nodes, const Environment& environment,
                            const Targets& targets);
  void set_outputs(const GraphProto& proto, const Environment& environment);
  ValueId add_value(const Environment& environment, std::string_view name);
  void set_constant(const Environment& environment, ValueId id, const NamedTensor& constant);
  void finish(Graph& graph);

  // node_builder.cc
  void build_node(const NodeProto& proto, const Environment& environment);
  // `function`: the one of the file that the node would call; null: none.
  void build_operator(Node node, const NodeProto& proto, const Environment& environment, const FunctionProto* function);
  void build_compress(const Node& node, const Environment& environment);
  std::vector<ValueId> operands(const NodeProto& proto, const Environment& environment);
  std::vector<ValueId> results(const NodeProto& proto, const Environment& environment);
  int imported_opset(const std::string& domain, const Environment& environment) const;  // 0: none
  int opset_of(const std::string& domain, const Environment& environment) const;
  void note_changed(const Node& node, int opset);

  // attribute_builder.cc
  // Follows ref_attr_name. Nothing: the function's caller leaves the attribute out and it has no default.
  std::optional<ResolvedAttribute> resolve_attribute(AttributeSource source);
  Attribute build_attribute(const ResolvedAttribute& attribute, const Environment& user);
  std::shared_ptr<Graph> build_subgraph(const ResolvedAttribute& attribute, const Environment& user);
  // Of a Constant node.
  NamedTensor constant_value(const NodeProto& proto, const Environment& environment);

  // function_inliner.cc
  const FunctionProto* find_function(const NodeProto& proto) const;
  // Whether calls of the function are nodes of an operator; `node`: has its name and opset.
  bool is_operator(const FunctionProto& function, Node node) const;
  void add_defaults(const FunctionProto& function, const Environment& environment, Node* node);
  void inline_call(const FunctionProto& function, const Node& call, const NodeProto& proto,
                   const Environment& environment);
  std::unordered_map<std::string_view, AttributeSource> call_attributes(const FunctionProto& function,
                                                                        const NodeProto& proto,
                                                                        const Environment& environment,
                                                                        const Environment& defaults) const;
  void forward_outputs(const FunctionProto& function, const Node& call, const Environment& body);

  // Book what the result costs; throw when a limit of limits.h is passed.
  void charge_node();
  void charge_value();
  void charge_inlined(const Call* call, size_t bytes);

  const ModelProto& model_;
  TensorReader& tensors_;
  bool (*is_operator_)(const Node&);
  Graph* root_ = nullptr;  // owns the symbols of all graphs
  std::unordered_map<std::string, const FunctionProto*> functions_;
  std::unordered_map<const Graph*, std::unordered_set<ValueId>> strings_;  // constants that cannot be held
  struct ChangedOperator {
    int since, nodes;
    std::string first;  // name of a node
  };
  std::map<std::pair<std::string, int>, ChangedOperator> changed_;  // by operator and opset
  int64_t nodes_ = 0, values_ = 0, inlined_bytes_ = 0;
  int call_depth_ = 0;
};

// ValueInfoProto of a graph input or output. value_info.cc
struct DeclaredValue {
  std::string_view name;
  ValueInfo info;
};
// `symbols` names the dims; anonymous ones of an input become symbols "unk_<input>_<axis>". For outputs (and with
// `symbols` null) a shape that cannot be expressed is left unranked: it follows from the graph anyway.
DeclaredValue parse_value_info(std::string_view bytes, const WirePath& path, Graph* symbols, bool is_input);
// Rank and dims of a constant, and its elements where it is a small integer tensor.
ValueInfo constant_info(const NamedTensor& constant);

}  // namespace situ::onnx
