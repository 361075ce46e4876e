// Which other files of a folder to take where one holds what is not supported and others need not.
#pragma once

#include <string>
#include <vector>

#include "pipelines/model_folder.h"
#include "runtime/compile.h"

namespace situ {

// "take --variant q4 (fp16 is there too)" where graphs have operators that are not supported and the folder has other
// variants of all of them; "": they do not, or it has none. `wanted`: what --variant says; `by_file`: the
// model is given as a file, without a choice of variants.
std::string other_variants(const ModelFolder& folder, const ModelFiles& files, const std::vector<std::string>& wanted,
                           bool by_file);

}  // namespace situ
