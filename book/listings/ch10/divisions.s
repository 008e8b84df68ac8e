# g++ 12.2.0 with -O3 -march=x86-64-v3
tenth(unsigned):
  movl    %edi, %eax
  movl    $3435973837, %edx
  imulq   %rdx, %rax
  shrq    $35, %rax
  ret
eighth(float):
  vmulss  .LC6(%rip), %xmm0, %xmm0
  ret
tenth(float):
  vdivss  .LC7(%rip), %xmm0, %xmm0
  ret
