// What only the name of a graph's input tells, however it is spelled.
#pragma once

#include <initializer_list>
#include <string>

#include "graph/graph.h"

namespace situ {

// "Attention_Mask" -> "attentionmask"
std::string plain_name(const std::string& name);
// The input of the configured name, or of a usual one where none is configured; kNoValue: there is none.
ValueId named_input(const Graph& graph, const std::string& configured, std::initializer_list<const char*> usual);
// Positions, and no other integers that tokens have, such as timesteps or positions within a block.
bool names_positions(const std::string& name);
// Which of several texts a token is of: zeros, the first, unless the caller gives them.
bool names_token_types(const std::string& name);
// The count of a step's last tokens whose logits are computed.
bool names_kept_logits(const std::string& name);
// A mask of what is attended to. Of any other name it may be of a window, of a segment or of what is global: the host
// decides what it shows. Whether ones mean "attend to all" in those of these names is seen in check_mask.
bool names_mask(const std::string& name);
// A weight of a LoRA adapter: lora_A or lora_B in the name.
bool names_adapter(const std::string& name);

}  // namespace situ
