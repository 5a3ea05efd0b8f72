package explore

func (s *search) byDPOR() { panic("explore: not yet") }
