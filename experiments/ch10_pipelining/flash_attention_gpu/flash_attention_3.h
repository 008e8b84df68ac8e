// FlashAttention 3, called by flash_attention_3.py; window_attention_gpu measures it too.
#pragma once

#include "attention.h"
#include "lab/python_variant.h"

namespace fathom::lab::flash_attention_gpu {

inline PythonArguments flash_attention_3(const PromptAttention& p) {
  return {{"q", p.q},         {"tiles", p.tiles}, {"pages", p.pages},
          {"sinks", p.sinks}, {"out", p.out},     {"window", p.window}};
}

}  // namespace fathom::lab::flash_attention_gpu
