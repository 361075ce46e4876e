// Tags of a prompt's text that stand for images and sounds, such as <image>.
#pragma once

#include <string>
#include <string_view>

#include "situ/model.h"

namespace situ {

// What else a prompt has, or cannot have: tags that stand for these are not looked for.
struct OtherMedia {
  bool images = false, sounds = false;
};

// Refuses a text with a tag where there is nothing that it stands for, and says how to give it: option "--" makes
// "--image FILE". The tags are those of the processor of the model's family, and the tokens that rows of its encoders
// stand for.
Status check_media_tags(const Model& model, std::string_view text, OtherMedia given, const std::string& option);

}  // namespace situ
