#include "passes/module/input_names.h"

#include <algorithm>
#include <cctype>
#include <set>

namespace situ {

std::string plain_name(const std::string& name) {
  std::string p;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)))
      p += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return p;
}

ValueId named_input(const Graph& graph, const std::string& configured, std::initializer_list<const char*> usual) {
  const auto found = std::find_if(graph.inputs.begin(), graph.inputs.end(), [&](ValueId v) {
    const std::string& name = graph.values[v].name;
    return configured.empty() ? std::find(usual.begin(), usual.end(), name) != usual.end() : name == configured;
  });
  return found == graph.inputs.end() ? kNoValue : *found;
}

bool names_positions(const std::string& name) {
  static const std::set<std::string> names{
      "positionids", "decoderpositionids", "positionalids", "cacheposition", "cachepositions", "position",
      "positions",   "positionid",         "positionidx",   "pos",           "posid",          "posids",
      "inputpos",    "inputpositions",     "tokenpos",      "tokenpositions"};
  return names.count(plain_name(name)) != 0;
}

bool names_token_types(const std::string& input) {
  static const std::set<std::string> names{"tokentypeids", "tokentypeid", "tokentypes", "tokentype",
                                           "decodertokentypeids"};
  return names.count(plain_name(input)) != 0;
}

bool names_kept_logits(const std::string& name) {
  const std::string p = plain_name(name);
  return p == "numlogitstokeep" || p == "logitstokeep";
}

bool names_adapter(const std::string& name) {
  const std::string p = plain_name(name);
  return p.find("loraa") != p.npos || p.find("lorab") != p.npos;
}

bool names_mask(const std::string& name) {
  static const std::string names =
      " attentionmask attentionmasks attnmask attnmasks attmask mask masks inputmask tokenmask paddingmask padmask "
      "keypaddingmask decoderattentionmask decodermask ";
  return names.find(" " + plain_name(name) + " ") != std::string::npos;
}

}  // namespace situ
