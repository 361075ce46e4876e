#include "passes/input_names.h"

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

bool names_positions(const std::string& name) {
  static const std::set<std::string> names{
      "positionids", "decoderpositionids", "positionalids", "cacheposition", "cachepositions", "position",
      "positions",   "positionid",         "positionidx",   "pos",           "posid",          "posids",
      "inputpos",    "inputpositions",     "tokenpos",      "tokenpositions"};
  return names.count(plain_name(name)) != 0;
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
  static const std::set<std::string> names{"attentionmask",
                                           "attentionmasks",
                                           "attnmask",
                                           "attnmasks",
                                           "attmask",
                                           "mask",
                                           "masks",
                                           "inputmask",
                                           "tokenmask",
                                           "paddingmask",
                                           "padmask",
                                           "keypaddingmask",
                                           "decoderattentionmask",
                                           "decodermask"};
  return names.count(plain_name(name)) != 0;
}

}  // namespace situ
