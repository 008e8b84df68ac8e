# The target header_check compiles every header under src/ alone and includes it twice: to prove that it includes what
# it uses, and that it has #pragma once. Not part of `all`. Headers that need CUDA's are checked only in CUDA builds.
# Include after add_subdirectory(src).
function(fathom_header_check)
  file(GLOB_RECURSE headers RELATIVE ${CMAKE_SOURCE_DIR}/src CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/*.h)
  set(layers "")
  foreach(header IN LISTS headers)
    if(NOT FATHOM_CUDA)
      file(STRINGS ${CMAKE_SOURCE_DIR}/src/${header} of_cuda
           REGEX "^#include (<(cuda|cublas|cupti|nvtx)|\"core/(cuda|cublas)\\.h)")
      if(of_cuda)
        continue()
      endif()
    endif()
    string(REGEX MATCH "^[^/]+" layer ${header})
    list(APPEND layers ${layer})
    set(unit ${CMAKE_BINARY_DIR}/header_check/${header}.cpp)
    file(CONFIGURE OUTPUT ${unit} CONTENT "#include \"${header}\"\n#include \"${header}\"\n")
    list(APPEND ${layer}_units ${unit})
  endforeach()
  list(REMOVE_DUPLICATES layers)

  add_custom_target(header_check)
  foreach(layer IN LISTS layers)
    add_library(header_check_${layer} OBJECT EXCLUDE_FROM_ALL ${${layer}_units})
    set_target_properties(header_check_${layer} PROPERTIES UNITY_BUILD OFF)
    target_compile_options(header_check_${layer} PRIVATE -O0 -g0)  # nobody runs it
    target_link_libraries(header_check_${layer} PRIVATE fathom_flags)
    if(TARGET fathom_${layer})  # a layer's public dependencies must suffice for its headers
      target_link_libraries(header_check_${layer} PRIVATE fathom_${layer})
    elseif(TARGET fathom)  # headers of the program see its dependencies
      target_link_libraries(header_check_${layer} PRIVATE $<TARGET_PROPERTY:fathom,LINK_LIBRARIES>)
    endif()
    add_dependencies(header_check header_check_${layer})
  endforeach()
endfunction()

fathom_header_check()
