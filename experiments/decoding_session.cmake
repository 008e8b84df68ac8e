# Shared by sessions on a model of gpt-oss-20b's shape; each chapter includes this, so that it can be built alone.
include_guard(GLOBAL)
include(${CMAKE_SOURCE_DIR}/experiments/engine_session.cmake)
add_library(fathom_decoding_session STATIC ${CMAKE_CURRENT_LIST_DIR}/decoding_session.cpp
                                           ${CMAKE_CURRENT_LIST_DIR}/scripted_drafts.cpp)
target_link_libraries(fathom_decoding_session PUBLIC fathom_engine_session fathom_engine PRIVATE fathom_flags fmt::fmt)
