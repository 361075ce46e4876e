#include "passes/module/embeddings.h"

#include <algorithm>
#include <map>

#include "passes/module/module.h"
#include "passes/module/specialise.h"

namespace situ {
namespace {

bool fits(const Value& made, const Value& taken) {
  if (made.info.type != taken.info.type || made.info.shape.size() != 3) return false;
  const Dim &a = made.info.shape[2], &b = taken.info.shape[2];
  return !a.is_const() || !b.is_const() || a == b;
}

// The ids of the lookup as an input of the decoder: its own, where it has one of that name.
ValueId ids_of(Graph& decoder, const Graph& lookup, ValueId embeddings) {
  const Value& ids = lookup.values[lookup.inputs[0]];
  for (const ValueId v : decoder.inputs)
    if (decoder.values[v].name == ids.name) return v;
  const ValueId v = decoder.add_value(ids.name, ids.info.type);
  // Tokens are those of the embeddings.
  decoder.values[v].info.ranked = true;
  decoder.values[v].info.shape = {decoder.values[embeddings].info.shape[0], decoder.values[embeddings].info.shape[1]};
  decoder.inputs.insert(decoder.inputs.begin(), v);
  return v;
}

}  // namespace

ValueId embeddings_input(const Graph& decoder) {
  ValueId found = kNoValue;
  for (const ValueId v : decoder.inputs) {
    const Value& value = decoder.values[v];
    if (!dtype_is_float(value.info.type) || value.info.shape.size() != 3 || !state_suffix(value.name).empty()) continue;
    if (found != kNoValue) return kNoValue;
    found = v;
  }
  return found;
}

std::string no_token_ids(const Graph& decoder) {
  const ValueId rows = embeddings_input(decoder);
  if (rows == kNoValue) return "no input takes token ids (an integer tensor of shape [batch, sequence])";
  return "input '" + decoder.values[rows].name +
         "' takes embeddings, and the table of tokens is not in the file: export the model without exclude_embeds, or "
         "with the embeddings as a graph beside it";
}

Status join_embeddings(Graph& decoder, const std::string& decoder_name, const Graph& lookup,
                       const std::string& lookup_name) {
  const ValueId embeddings = embeddings_input(decoder);
  if (embeddings == kNoValue)
    return Status::error(decoder_name + ": no input, or more than one, takes the embeddings of " + lookup_name +
                         " (floats of shape [batch, tokens, width])");
  const bool takes_ids = lookup.inputs.size() == 1 && !dtype_is_float(lookup.values[lookup.inputs[0]].info.type) &&
                         lookup.values[lookup.inputs[0]].info.shape.size() == 2;
  if (!takes_ids) {
    std::string inputs;
    for (const ValueId v : lookup.inputs) inputs += (inputs.empty() ? "" : ", ") + lookup.describe(v);
    return Status::error(lookup_name + ": its one input should be token ids [batch, tokens]; it has " + inputs);
  }
  // What the decoder takes beside them, by name: Gemma 3n's embeddings for each layer.
  std::vector<ValueId> made, beside, taken;
  for (const ValueId v : lookup.outputs) {
    const auto same = std::find_if(decoder.inputs.begin(), decoder.inputs.end(), [&](ValueId in) {
      return in != embeddings && decoder.values[in].name == lookup.values[v].name &&
             decoder.values[in].info.type == lookup.values[v].info.type;
    });
    if (same != decoder.inputs.end() && lookup.values[v].producer >= 0) {
      beside.push_back(v);
      taken.push_back(*same);
    } else if (fits(lookup.values[v], decoder.values[embeddings])) {
      made.push_back(v);
    }
  }
  if (made.size() > 1)
    std::erase_if(made, [&](ValueId v) { return lookup.values[v].name != decoder.values[embeddings].name; });
  if (made.size() != 1 || lookup.values[made[0]].producer < 0)
    return Status::error(lookup_name + ": " + std::to_string(made.size()) + " of its outputs could be input " +
                         decoder.describe(embeddings) + " of " + decoder_name);
  Graph part = lookup;
  made.insert(made.end(), beside.begin(), beside.end());
  slice(part, made);
  taken.insert(taken.begin(), embeddings);
  const ValueId ids = ids_of(decoder, lookup, embeddings);
  const std::vector<ValueId> joined = link(decoder, part, {{lookup.inputs[0], ids}}, "embed/");
  for (size_t i = 0; i < taken.size(); ++i) {
    decoder.replace_uses(taken[i], joined[i]);
    std::erase(decoder.inputs, taken[i]);
    std::string& name = decoder.values[taken[i]].name;
    decoder.values[joined[i]].name = name;
    name += "/input";
  }
  SITU_RETURN_IF_ERROR(decoder.sort());
  decoder.rebuild_links();
  return Status::ok();
}

}  // namespace situ
