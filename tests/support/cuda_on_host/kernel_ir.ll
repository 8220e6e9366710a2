; Checks that are inlined into a kernel; what they find is told to kernels.c, whose types begin like these.
%Slot = type { i64, i64 }
; begin, room
%Here = type { [12 x i32], ptr, ptr }
; registers, shared memory, slots
%State = type { i64 }
; countdown
%Program = type { ptr, ptr, i64, i64, i64, ptr, i64, ptr }
; name, run, bytes of shared memory, whether threads cooperate, sites, constants

declare void @coh_kernel_fault(ptr, ptr, i64, i64, i64) cold noreturn
declare void @coh_kernel_access(ptr, ptr, ptr, i64, i64) cold
declare void @coh_kernel_range(ptr, ptr, ptr, i64, i64)
declare void @coh_kernel_pause(ptr) cold
declare void @coh_kernel_barrier(ptr, ptr, i64)

define internal void @host.fault(ptr %here, ptr %state, i64 %kind, i64 %value, i64 %site) noinline cold noreturn {
  call void @coh_kernel_fault(ptr %here, ptr %state, i64 %kind, i64 %value, i64 %site)
  unreachable
}

define internal void @host.barrier(ptr %here, ptr %state, i64 %site) alwaysinline {
  call void @coh_kernel_barrier(ptr %here, ptr %state, i64 %site)
  ret void
}

define internal void @host.align(ptr %here, ptr %state, ptr %address, i64 %mask, i64 %site) alwaysinline {
  %bits = ptrtoint ptr %address to i64
  %low = and i64 %bits, %mask
  %aligned = icmp eq i64 %low, 0
  br i1 %aligned, label %done, label %fault, !prof !{!"branch_weights", i32 1000, i32 1}
fault:
  call void @host.fault(ptr %here, ptr %state, i64 1, i64 %bits, i64 %site)
  unreachable
done:
  ret void
}

; A shift by all of a word's bits, or more, is any number to LLVM.
define internal void @host.shift(ptr %here, ptr %state, i64 %by, i64 %bits, i64 %site) alwaysinline {
  %fine = icmp ult i64 %by, %bits
  br i1 %fine, label %done, label %fault, !prof !{!"branch_weights", i32 1000, i32 1}
fault:
  call void @host.fault(ptr %here, ptr %state, i64 2, i64 %by, i64 %site)
  unreachable
done:
  ret void
}

define internal void @host.overflow(ptr %here, ptr %state, i1 %flag, i64 %site) alwaysinline {
  br i1 %flag, label %fault, label %done, !prof !{!"branch_weights", i32 1, i32 1000}
fault:
  call void @host.fault(ptr %here, ptr %state, i64 3, i64 0, i64 %site)
  unreachable
done:
  ret void
}

define internal void @host.raised(ptr %here, ptr %state, i64 %site) alwaysinline {
  call void @host.fault(ptr %here, ptr %state, i64 4, i64 0, i64 %site)
  unreachable
}

; The flag: the divisor is 0, or the quotient of two signed numbers is too large.
define internal void @host.divide(ptr %here, ptr %state, i1 %flag, i64 %site) alwaysinline {
  br i1 %flag, label %fault, label %done, !prof !{!"branch_weights", i32 1, i32 1000}
fault:
  call void @host.fault(ptr %here, ptr %state, i64 5, i64 0, i64 %site)
  unreachable
done:
  ret void
}

; An instruction mostly accesses the same memory again.
define internal void @host.access(ptr %here, ptr %state, ptr %address, i64 %nbytes, i64 %site) alwaysinline {
  %pslots = getelementptr %Here, ptr %here, i64 0, i32 2
  %slots = load ptr, ptr %pslots
  %pbegin = getelementptr %Slot, ptr %slots, i64 %site, i32 0
  %proom = getelementptr %Slot, ptr %slots, i64 %site, i32 1
  %begin = load i64, ptr %pbegin
  %room = load i64, ptr %proom
  %at = ptrtoint ptr %address to i64
  %offset = sub i64 %at, %begin
  %inside = icmp ult i64 %offset, %room
  br i1 %inside, label %done, label %other, !prof !{!"branch_weights", i32 1000, i32 1}
other:
  call void @coh_kernel_access(ptr %here, ptr %state, ptr %address, i64 %nbytes, i64 %site)
  br label %done
done:
  ret void
}

; Let other threads go first, now and then.
define internal void @host.pause(ptr %here, ptr %state) alwaysinline {
  %count = load i64, ptr %state
  %left = sub i64 %count, 1
  store i64 %left, ptr %state
  %now = icmp eq i64 %left, 0
  br i1 %now, label %yield, label %done, !prof !{!"branch_weights", i32 1, i32 100}
yield:
  call void @coh_kernel_pause(ptr %state)
  br label %done
done:
  ret void
}
